"""Many runs together: read into rows, kept as Parquet, asked by SQL."""
