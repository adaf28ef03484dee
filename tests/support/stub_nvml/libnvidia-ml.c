/* A stand-in for NVIDIA's management library: it returns the values in a text file.
 *
 * NVML_STUB names the file; it is read at every call, so a test can change it at any time. One "key value" per line:
 *     gpus 2                             how many GPUs there are; 1 without this line
 *     1.power 70000                      what GPU 1 returns, in NVML's units; without "1.", for all GPUs
 *     fail.nvmlDeviceGetPowerUsage 3     the error a function returns; "1.fail...." for GPU 1 only
 *     0.process 41 1000                  process 41 holds 1000 bytes of GPU 0 (any number of such lines)
 *     0.mig 1                            GPU 0 is in MIG mode and has one MIG device
 *     0.gpm.2 50                         value of metric 2 of GPU 0's performance counters
 * Every call is written as a line, "function gpu", to the file NVML_STUB + ".calls".
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7 };
enum { MAX_GPUS = 8, MIG_INSTANCE = 5 };

typedef struct { unsigned gpu; int mig; } Device;
typedef struct { unsigned long long total, free, used; } Memory;
typedef struct { unsigned gpu, memory; } Utilization;
typedef struct { unsigned pid; unsigned long long memory; unsigned gpu_instance, compute_instance; } Process;
typedef struct { unsigned version, supported; } GpmSupport;
typedef struct { unsigned gpu; int order; } GpmSample;
typedef struct { unsigned id; int error; double value; const char *short_name, *long_name, *unit; } GpmMetric;
typedef struct { unsigned version, count; GpmSample *first, *second; GpmMetric metrics[]; } GpmRequest;

typedef struct { char legacy[16]; unsigned domain, bus, device, id, subsystem; char address[32]; } Pci;

static Device boards[MAX_GPUS], migs[MAX_GPUS];

/* The rest of the file's line after "<gpu>.<key> ", or else after "<key> ". */
static const char *text(unsigned gpu, const char *key) {
    static char general[256], special[256];
    char line[256], own[128];
    general[0] = special[0] = '\0';
    snprintf(own, sizeof own, "%u.%s", gpu, key);
    FILE *file = fopen(getenv("NVML_STUB"), "r");
    while (file && fgets(line, sizeof line, file)) {
        char *value = strchr(line, ' ');
        if (!value) continue;
        *value++ = '\0';
        value[strcspn(value, "\n")] = '\0';
        if (!strcmp(line, key)) strcpy(general, value);
        if (!strcmp(line, own)) strcpy(special, value);
    }
    if (file) fclose(file);
    return special[0] ? special : general[0] ? general : NULL;
}

static double number(unsigned gpu, const char *key, double otherwise) {
    const char *value = text(gpu, key);
    return value ? atof(value) : otherwise;
}

/* Log the call; return the error that it must return. */
static int called(const char *function, unsigned gpu) {
    char name[512];
    snprintf(name, sizeof name, "%s.calls", getenv("NVML_STUB"));
    FILE *file = fopen(name, "a");
    if (file) {
        fprintf(file, "%s %u\n", function, gpu);
        fclose(file);
    }
    snprintf(name, sizeof name, "fail.%s", function);
    return (int)number(gpu, name, SUCCESS);
}

#define CALLED(gpu) do { int error = called(__func__, gpu); if (error) return error; } while (0)

/* A function (device, unsigned *out): it returns a board's value; MIG devices do not support it. */
#define ANSWERS(function, key, otherwise) \
    int function(Device *device, unsigned *out) { \
        CALLED(device->gpu); \
        if (device->mig) return NOT_SUPPORTED; \
        *out = (unsigned)number(device->gpu, key, otherwise); \
        return SUCCESS; \
    }

int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    CALLED(0);
    for (unsigned i = 0; i < MAX_GPUS; i++) boards[i] = (Device){i, 0}, migs[i] = (Device){i, 1};
    return SUCCESS;
}

int nvmlShutdown(void) { CALLED(0); return SUCCESS; }

const char *nvmlErrorString(int error) { (void)error; return "an error of the stand-in"; }

int nvmlSystemGetDriverVersion(char *out, unsigned size) {
    CALLED(0);
    snprintf(out, size, "580.00");
    return SUCCESS;
}

int nvmlSystemGetCudaDriverVersion_v2(int *out) { CALLED(0); *out = 13010; return SUCCESS; }

int nvmlDeviceGetCount_v2(unsigned *out) { CALLED(0); *out = (unsigned)number(0, "gpus", 1); return SUCCESS; }

int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device **out) { CALLED(index); *out = &boards[index]; return SUCCESS; }

int nvmlDeviceGetUUID(Device *device, char *out, unsigned size) {
    CALLED(device->gpu);
    snprintf(out, size, "%s-%u0000000-stub", device->mig ? "MIG" : "GPU", device->gpu);
    return SUCCESS;
}

int nvmlDeviceGetName(Device *device, char *out, unsigned size) {
    CALLED(device->gpu);
    const char *name = text(device->gpu, "name");
    snprintf(out, size, "%s%s", name ? name : "Stub GPU", device->mig ? " MIG 1g" : "");
    return SUCCESS;
}

int nvmlDeviceGetPciInfo_v3(Device *device, Pci *out) {
    CALLED(device->gpu);
    *out = (Pci){.bus = (unsigned)number(device->gpu, "pci_bus", 0x3b)};
    return SUCCESS;
}

int nvmlDeviceGetCudaComputeCapability(Device *device, int *major, int *minor) {
    CALLED(device->gpu);
    *major = 9;
    *minor = 0;
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo(Device *device, Memory *out) {
    CALLED(device->gpu);
    out->total = (unsigned long long)number(device->gpu, device->mig ? "mig.memory" : "memory", 80e9);
    out->used = (unsigned long long)number(device->gpu, "used", 0);
    out->free = out->total - out->used;
    return SUCCESS;
}

int nvmlDeviceGetUtilizationRates(Device *device, Utilization *out) {
    CALLED(device->gpu);
    if (device->mig) return NOT_SUPPORTED;
    out->gpu = (unsigned)number(device->gpu, "utilization", 0);
    out->memory = 0;
    return SUCCESS;
}

int nvmlDeviceGetComputeRunningProcesses_v3(Device *device, unsigned *count, Process *out) {
    CALLED(device->gpu);
    unsigned found = 0, room = out ? *count : 0;
    char line[256];
    FILE *file = fopen(getenv("NVML_STUB"), "r");
    while (file && fgets(line, sizeof line, file)) {
        unsigned gpu, pid;
        unsigned long long memory;
        if (sscanf(line, "%u.process %u %llu", &gpu, &pid, &memory) != 3 || gpu != device->gpu) continue;
        if (found < room) out[found] = (Process){pid, memory, 0, 0};
        found++;
    }
    if (file) fclose(file);
    *count = found;
    return found > room ? INSUFFICIENT_SIZE : SUCCESS;
}

int nvmlDeviceGetTotalEnergyConsumption(Device *device, unsigned long long *out) {
    CALLED(device->gpu);
    *out = (unsigned long long)number(device->gpu, "energy", 0);
    return SUCCESS;
}

int nvmlDeviceGetClockInfo(Device *device, int clock, unsigned *out) {
    CALLED(device->gpu);
    *out = (unsigned)number(device->gpu, clock == 1 ? "sm_clock" : "memory_clock", 0);
    return SUCCESS;
}

int nvmlDeviceGetMaxClockInfo(Device *device, int clock, unsigned *out) {
    CALLED(device->gpu);
    *out = clock == 1 ? 1980 : 2619;
    return SUCCESS;
}

int nvmlDeviceGetTemperature(Device *device, int sensor, unsigned *out) {
    (void)sensor;
    CALLED(device->gpu);
    *out = (unsigned)number(device->gpu, "temperature", 40);
    return SUCCESS;
}

int nvmlDeviceGetCurrentClocksEventReasons(Device *device, unsigned long long *out) {
    CALLED(device->gpu);
    *out = (unsigned long long)number(device->gpu, "throttle", 0);
    return SUCCESS;
}

int nvmlDeviceGetCurrentClocksThrottleReasons(Device *device, unsigned long long *out) {
    CALLED(device->gpu);
    *out = (unsigned long long)number(device->gpu, "throttle", 0);
    return SUCCESS;
}

ANSWERS(nvmlDeviceGetPowerUsage, "power", 0)
ANSWERS(nvmlDeviceGetEnforcedPowerLimit, "power_limit", 700000)
ANSWERS(nvmlDeviceGetMaxPcieLinkGeneration, "pcie_generation_max", 5)
ANSWERS(nvmlDeviceGetMaxPcieLinkWidth, "pcie_width_max", 16)
ANSWERS(nvmlDeviceGetCurrPcieLinkGeneration, "pcie_generation", 5)
ANSWERS(nvmlDeviceGetCurrPcieLinkWidth, "pcie_width", 16)
ANSWERS(nvmlDeviceGetMaxMigDeviceCount, "mig", 0)

int nvmlDeviceGetMigMode(Device *device, unsigned *current, unsigned *pending) {
    CALLED(device->gpu);
    *current = *pending = number(device->gpu, "mig", 0) > 0;
    return SUCCESS;
}

int nvmlDeviceGetMigDeviceHandleByIndex(Device *device, unsigned index, Device **out) {
    CALLED(device->gpu);
    if (index) return NOT_FOUND;
    *out = &migs[device->gpu];
    return SUCCESS;
}

int nvmlDeviceGetGpuInstanceId(Device *device, unsigned *out) {
    CALLED(device->gpu);
    if (!device->mig) return NOT_FOUND;
    *out = MIG_INSTANCE;
    return SUCCESS;
}

int nvmlGpmQueryDeviceSupport(Device *device, GpmSupport *out) {
    CALLED(device->gpu);
    out->supported = text(device->gpu, "gpm") != NULL;
    return SUCCESS;
}

int nvmlGpmSampleAlloc(GpmSample **out) { CALLED(0); *out = calloc(1, sizeof **out); return SUCCESS; }

int nvmlGpmSampleFree(GpmSample *sample) { CALLED(0); free(sample); return SUCCESS; }

static int take(Device *device, GpmSample *sample) {
    static int order;
    *sample = (GpmSample){device->gpu, ++order};
    return SUCCESS;
}

int nvmlGpmSampleGet(Device *device, GpmSample *sample) { CALLED(device->gpu); return take(device, sample); }

int nvmlGpmMigSampleGet(Device *device, unsigned instance, GpmSample *sample) {
    CALLED(device->gpu);
    return device->mig || instance != MIG_INSTANCE ? INVALID_ARGUMENT : take(device, sample);
}

int nvmlGpmMetricsGet(GpmRequest *request) {
    GpmSample *first = request->first, *second = request->second;
    CALLED(second->gpu);
    if (request->version != 1 || !first->order || first->order >= second->order) return INVALID_ARGUMENT;
    for (unsigned i = 0; i < request->count; i++) {
        char key[64];
        snprintf(key, sizeof key, "gpm.%u", request->metrics[i].id);
        request->metrics[i].error = text(second->gpu, key) ? SUCCESS : NOT_SUPPORTED;
        request->metrics[i].value = number(second->gpu, key, -1);
    }
    return SUCCESS;
}
