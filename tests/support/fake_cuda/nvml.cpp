// NVML and its GPM counters, which agree with what the runtime simulates. Structures are as in nvml.h, which no wheel
// contains. FAKECUDA_NVML_FAIL, _SLOW and _PROCESSES set what it refuses, what it answers late, and which processes it
// shows.
#include <unistd.h>

#include <algorithm>

#include "sim.h"

enum Return { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NO_PERMISSION = 4, NOT_FOUND = 6, TOO_SMALL = 7 };
static const u64 RESERVED = 450ull << 20;         // bytes of a board that the driver keeps
static const u64 UTILIZATION_PERIOD = 50000000;   // ns

struct Device {
    int board, mig;  // mig: which MIG device; -1: the board
    u64 read_at, busy;
    unsigned last;
};
struct Process {
    unsigned pid;
    u64 memory;
    unsigned gpu_instance, compute_instance;
};

static Device* device_at(int board, int mig = -1) {
    static Device devices[MOST_GPUS][8];
    Device* device = &devices[board][mig + 1];
    device->board = board;
    device->mig = mig;
    return device;
}

// The number that NAME="function=number,..." gives for this function or, with "*", for all functions.
static double setting(const char* variable, const char* function) {
    const char* text = getenv(variable);
    double found = 0;
    std::string one;
    for (; text; text = *text ? text + 1 : nullptr) {
        if (*text && *text != ',') {
            one += *text;
            continue;
        }
        size_t equals = one.find('=');
        std::string name = one.substr(0, equals);
        if (equals != std::string::npos && (name == function || name == "*")) found = atof(one.c_str() + equals + 1);
        one.clear();
    }
    return found;
}
static int asked(const char* function) {
    double seconds = setting("FAKECUDA_NVML_SLOW", function);
    if (seconds > 0) usleep((useconds_t)(seconds * 1e6));
    return (int)setting("FAKECUDA_NVML_FAIL", function);
}
#define NV(name, ...)        \
    API int name(__VA_ARGS__) { \
        if (int refused_ = asked(#name)) return refused_;
#define OF_BOARD(d) \
    if (d->mig >= 0) return NOT_SUPPORTED;

static u64 busy_until_now(int board) {
    u64 n = now(), sum = 0;
    for (auto& s : shared_state()->slots)
        if (s.pid) sum += s.busy[board] - (s.ready[board] > n ? std::min(s.busy[board], s.ready[board] - n) : 0);
    return sum;
}

// Other processes on the machine: FAKECUDA_OTHERS="board:pid:MiB,..."
static std::vector<std::pair<int, Process>> others() {
    std::vector<std::pair<int, Process>> found;
    const char* text = getenv("FAKECUDA_OTHERS");
    int board, taken;
    unsigned pid, mib;
    while (text && sscanf(text, "%d:%u:%u%n", &board, &pid, &mib, &taken) == 3) {
        found.push_back({board, {pid, (u64)mib << 20, ~0u, ~0u}});
        text += taken;
        if (*text == ',') text++;
    }
    return found;
}

NV(nvmlInit_v2) return SUCCESS; }
NV(nvmlInit) return nvmlInit_v2(); }
NV(nvmlInitWithFlags, unsigned) return nvmlInit_v2(); }
NV(nvmlShutdown) return SUCCESS; }
API const char* nvmlErrorString(int r) {
    return r == NOT_SUPPORTED      ? "Not Supported"
           : r == INVALID_ARGUMENT ? "Invalid Argument"
           : r == NO_PERMISSION    ? "Insufficient Permissions"
           : r == NOT_FOUND        ? "Not Found"
                                   : "an error of the stand-in's NVML";
}
NV(nvmlSystemGetDriverVersion, char* text, unsigned n)
    snprintf(text, n, "570.86.15");
    return SUCCESS;
}
NV(nvmlSystemGetCudaDriverVersion_v2, int* v)
    *v = CUDART_VERSION;
    return SUCCESS;
}
NV(nvmlSystemGetCudaDriverVersion, int* v)
    *v = CUDART_VERSION;
    return SUCCESS;
}
NV(nvmlDeviceGetCount_v2, unsigned* n)
    *n = boards().size();
    return SUCCESS;
}
NV(nvmlDeviceGetCount, unsigned* n) return nvmlDeviceGetCount_v2(n); }
NV(nvmlDeviceGetHandleByIndex_v2, unsigned i, Device** d)
    if (i >= boards().size()) return INVALID_ARGUMENT;
    *d = device_at(i);
    return SUCCESS;
}
NV(nvmlDeviceGetHandleByIndex, unsigned i, Device** d) return nvmlDeviceGetHandleByIndex_v2(i, d); }
NV(nvmlDeviceGetHandleByPciBusId_v2, const char* text, Device** d)
    unsigned domain, bus;
    if (sscanf(text, "%x:%x", &domain, &bus) != 2 || bus < 1 || bus > boards().size()) return NOT_FOUND;
    *d = device_at(bus - 1);
    return SUCCESS;
}
NV(nvmlDeviceGetHandleByUUID, const char* text, Device** d)
    for (size_t b = 0; b < boards().size(); b++)
        for (int m = -1; m < boards()[b].mig; m++)
            if (uuid_of({(int)b, m}) == text) {
                *d = device_at(b, m);
                return SUCCESS;
            }
    return NOT_FOUND;
}
NV(nvmlDeviceGetUUID, Device* d, char* text, unsigned n)
    snprintf(text, n, "%s", uuid_of({d->board, d->mig}).c_str());
    return SUCCESS;
}
NV(nvmlDeviceGetName, Device* d, char* text, unsigned n)
    snprintf(text, n, "%s", name_of({d->board, d->mig}).c_str());
    return SUCCESS;
}
NV(nvmlDeviceGetCudaComputeCapability, Device* d, int* major, int* minor)
    *major = boards()[d->board].model->major;
    *minor = boards()[d->board].model->minor;
    return SUCCESS;
}
struct Memory {
    u64 total, free, used;
};
NV(nvmlDeviceGetMemoryInfo, Device* d, Memory* m)
    u64 used = shared_state()->used[d->board] + (d->mig < 0 ? RESERVED : 0);
    for (auto& [board, process] : others())
        if (board == d->board) used += process.memory;
    m->total = memory_of({d->board, d->mig});
    m->used = std::min(used, m->total);
    m->free = m->total - m->used;
    return SUCCESS;
}
struct Utilization {
    unsigned gpu, memory;
};
NV(nvmlDeviceGetUtilizationRates, Device* d, Utilization* u)
    if (boards()[d->board].mig) return NOT_SUPPORTED;
    u64 n = now(), busy = busy_until_now(d->board);
    if (d->read_at && n - d->read_at > UTILIZATION_PERIOD) {
        u64 more = busy > d->busy ? busy - d->busy : 0;
        d->last = (unsigned)std::min<u64>(100, more * 100 / (n - d->read_at));
    }
    if (!d->read_at || n - d->read_at > UTILIZATION_PERIOD) {
        d->read_at = n;
        d->busy = busy;
    }
    u->gpu = d->last;
    u->memory = d->last / 2;
    return SUCCESS;
}
#define VALUE(name, type, value)    \
    NV(name, Device* d, type* v)    \
        OF_BOARD(d)                 \
        *v = value;                 \
        return SUCCESS;             \
    }
#define VALUE_OF_KIND(name, type, value)    \
    NV(name, Device* d, int kind, type* v)  \
        OF_BOARD(d)                         \
        (void)kind;                         \
        *v = value;                         \
        return SUCCESS;                     \
    }
VALUE(nvmlDeviceGetPowerUsage, unsigned, 90000 + 5000 * d->last)
VALUE(nvmlDeviceGetTotalEnergyConsumption, u64, now() / 1000000 % 100000000 * 300)
VALUE(nvmlDeviceGetEnforcedPowerLimit, unsigned, 700000)
VALUE(nvmlDeviceGetCurrentClocksEventReasons, u64, 0)
VALUE(nvmlDeviceGetCurrentClocksThrottleReasons, u64, 0)
VALUE(nvmlDeviceGetCurrPcieLinkGeneration, unsigned, 5)
VALUE(nvmlDeviceGetCurrPcieLinkWidth, unsigned, 16)
VALUE(nvmlDeviceGetMaxPcieLinkGeneration, unsigned, 5)
VALUE(nvmlDeviceGetMaxPcieLinkWidth, unsigned, 16)
VALUE(nvmlDeviceGetMaxMigDeviceCount, unsigned, 7)
static const int MEMORY_CLOCK = 2;
VALUE_OF_KIND(nvmlDeviceGetClockInfo, unsigned, kind == MEMORY_CLOCK ? 2619 : 1755)
VALUE_OF_KIND(nvmlDeviceGetMaxClockInfo, unsigned, kind == MEMORY_CLOCK ? 2619 : 1980)
VALUE_OF_KIND(nvmlDeviceGetTemperature, unsigned, 52)
NV(nvmlDeviceGetPcieThroughput, Device* d, int, unsigned* v)
    OF_BOARD(d)
    usleep(20000);  // as long as the real function counts
    *v = 123456;
    return SUCCESS;
}
NV(nvmlDeviceGetNvLinkRemoteDeviceType, Device*, unsigned, int*) return NOT_SUPPORTED; }
NV(nvmlDeviceGetNvLinkRemotePciInfo_v2, Device*, unsigned, void*) return NOT_SUPPORTED; }
NV(nvmlDeviceGetMigMode, Device* d, unsigned* now_, unsigned* pending)
    OF_BOARD(d)
    if (boards()[d->board].model->major < 8) return NOT_SUPPORTED;
    *now_ = *pending = boards()[d->board].mig > 0;
    return SUCCESS;
}
NV(nvmlDeviceGetMigDeviceHandleByIndex, Device* d, unsigned i, Device** mig)
    if (d->mig >= 0 || (int)i >= boards()[d->board].mig) return NOT_FOUND;
    *mig = device_at(d->board, i);
    return SUCCESS;
}
NV(nvmlDeviceGetDeviceHandleFromMigDeviceHandle, Device* mig, Device** d)
    if (mig->mig < 0) return INVALID_ARGUMENT;
    *d = device_at(mig->board);
    return SUCCESS;
}
struct Pci {
    char legacy[16];
    unsigned domain, bus, device, id, subsystem;
    char address[32];
};
NV(nvmlDeviceGetPciInfo_v3, Device* d, Pci* p)
    memset(p, 0, sizeof *p);
    p->bus = d->board + 1;
    snprintf(p->address, sizeof p->address, "00000000:%02X:00.0", p->bus);
    snprintf(p->legacy, sizeof p->legacy, "0000:%02X:00.0", p->bus);
    return SUCCESS;
}
NV(nvmlDeviceGetComputeRunningProcesses_v3, Device* d, unsigned* n, Process* out)
    const char* shown = getenv("FAKECUDA_NVML_PROCESSES");  // hidden; foreign: numbers of another PID namespace
    unsigned most = *n, k = 0;
    auto add = [&](Process p) {
        if (out && k < most) out[k] = p;
        k++;
    };
    if (!shown || strcmp(shown, "hidden")) {
        unsigned offset = shown && !strcmp(shown, "foreign") ? 1000000 : 0;
        for (auto& s : shared_state()->slots)
            if (s.pid && s.used[d->board]) add({s.pid + offset, s.used[d->board], ~0u, ~0u});
        for (auto& [board, process] : others())
            if (board == d->board) add(process);
    }
    *n = k;
    return k > most ? TOO_SMALL : SUCCESS;
}
API int nvmlDeviceGetComputeRunningProcesses(Device* d, unsigned* n, Process* p) {
    return nvmlDeviceGetComputeRunningProcesses_v3(d, n, p);
}

// ---- GPM
struct Support {
    unsigned version, supported;
};
struct Sample {
    int board;
    u64 at, busy;
};
struct Metric {
    unsigned id;
    int error;
    double value;
    const char *name, *unit, *group;
};
struct MetricsGet {
    unsigned version, count;
    Sample *first, *second;
    Metric metrics[];
};
NV(nvmlGpmQueryDeviceSupport, Device* d, Support* s)
    s->supported = boards()[d->board].model->major >= 9;
    return SUCCESS;
}
NV(nvmlGpmSampleAlloc, Sample** s)
    *s = new Sample{};
    return SUCCESS;
}
NV(nvmlGpmSampleFree, Sample* s)
    delete s;
    return SUCCESS;
}
NV(nvmlGpmSampleGet, Device* d, Sample* s)
    *s = {d->board, now(), busy_until_now(d->board)};
    return SUCCESS;
}
NV(nvmlGpmMetricsGet, MetricsGet* g)
    Sample &a = *g->first, &b = *g->second;
    double share = b.at > a.at ? std::min(1.0, (double)(b.busy - std::min(a.busy, b.busy)) / (b.at - a.at)) : 0;
    for (unsigned i = 0; i < g->count; i++) {
        Metric& m = g->metrics[i];
        m.error = 0;
        switch (m.id) {  // percent of the time that something runs
            case 20: case 21: m.value = 0; break;  // PCIe bytes
            case 2: m.value = 90 * share; break;   // SM active
            case 3: m.value = 40 * share; break;   // SM occupancy
            case 5: m.value = 30 * share; break;   // tensor cores
            default: m.value = 35 * share;
        }
    }
    return SUCCESS;
}
