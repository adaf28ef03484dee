"""Many runs together: read into rows, stored as Parquet, queried with SQL."""
