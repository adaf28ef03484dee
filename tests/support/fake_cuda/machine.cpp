// The simulated machine: its GPUs, the processes that use them, and the calls that were made.
#include "sim.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>

u64 now() {
    timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return t.tv_sec * 1000000000ull + t.tv_nsec;
}

void sleep_until(u64 when) {
    u64 n = now();
    if (n >= when) return;
    if (when - n > 60000) {
        u64 early = when - 50000;
        timespec t = {(time_t)(early / 1000000000ull), (long)(early % 1000000000ull)};
        while (clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &t, 0) == EINTR) {
        }
    }
    while (now() < when) {
    }
}

bool tracing_calls() {
    static bool on = getenv("FAKECUDA_TRACE") != nullptr;
    return on;
}

const char* interned(const std::string& text) {
    static auto* kept = new std::unordered_set<std::string>;
    LOCK;
    return kept->insert(text).first->c_str();
}

static const Model MODELS[] = {
    {"H100", "NVIDIA H100 80GB HBM3", 9, 0, 132, 60e12, 400e12, 800e12, 3.3e12},
    {"A100", "NVIDIA A100-SXM4-80GB", 8, 0, 108, 19e12, 150e12, 300e12, 1.9e12},
    {"V100", "Tesla V100-SXM2-32GB", 7, 0, 80, 15e12, 15e12, 120e12, 0.9e12},
    {"T4", "Tesla T4", 7, 5, 40, 8e12, 8e12, 60e12, 0.3e12},
};

static std::vector<std::string> split(const std::string& text, char at) {
    std::vector<std::string> parts;
    size_t begin = 0;
    while (begin <= text.size()) {
        size_t end = std::min(text.find(at, begin), text.size());
        parts.push_back(text.substr(begin, end - begin));
        begin = end + 1;
    }
    return parts;
}

static std::string uuid_text(const char* prefix, const unsigned char* r) {
    char text[64];
    snprintf(text, sizeof text, "%s-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", prefix, r[0],
             r[1], r[2], r[3], r[4], r[5], r[6], r[7], r[8], r[9], r[10], r[11], r[12], r[13], r[14], r[15]);
    return text;
}

static std::vector<Board> read_boards() {
    const char* set = getenv("FAKECUDA_DEVICES");
    std::vector<Board> found;
    for (auto& one : split(set && *set ? set : "H100:80", ',')) {  // model:GiB[:mig=N]
        if (one.empty() || found.size() == MOST_GPUS) continue;
        auto parts = split(one, ':');
        Board board{&MODELS[0], 0, 0, {}, ""};
        for (auto& m : MODELS)
            if (parts[0] == m.key) board.model = &m;
        board.memory = (u64)((parts.size() > 1 ? atof(parts[1].c_str()) : 80.0) * (1ull << 30));
        if (parts.size() > 2 && parts[2].rfind("mig=", 0) == 0) board.mig = atoi(parts[2].c_str() + 4);
        int index = found.size();
        for (int k = 0; k < 16; k++) board.raw[k] = (unsigned char)(0x10 * (index + 10) + k * 7 + index);
        board.uuid = uuid_text("GPU", board.raw);
        found.push_back(board);
    }
    return found;
}

std::vector<Board>& boards() {
    static auto* found = new std::vector<Board>(read_boards());
    return *found;
}

u64 memory_of(const Visible& gpu) {
    const Board& board = boards()[gpu.board];
    return gpu.mig < 0 ? board.memory : board.memory / board.mig;
}

std::string uuid_of(const Visible& gpu) {
    const Board& board = boards()[gpu.board];
    if (gpu.mig < 0) return board.uuid;
    unsigned char raw[16];
    memcpy(raw, board.raw, 16);
    raw[15] ^= 0x80 + gpu.mig;
    return uuid_text("MIG", raw);
}

std::string name_of(const Visible& gpu) {
    const Board& board = boards()[gpu.board];
    if (gpu.mig < 0) return board.model->name;
    return std::string(board.model->name) + " MIG " + std::to_string(7 / board.mig) + "g." +
           std::to_string(memory_of(gpu) >> 30) + "gb";
}

// CUDA_DEVICE_ORDER and CUDA_VISIBLE_DEVICES, as the driver reads them: fastest first by default; an entry that names
// no GPU ends the list. On a board with MIG on, CUDA shows the first MIG device by default, and others by their UUID.
static std::vector<Visible> read_visible() {
    std::vector<Visible> order;
    for (size_t i = 0; i < boards().size(); i++) order.push_back({(int)i, boards()[i].mig ? 0 : -1});
    const char* by = getenv("CUDA_DEVICE_ORDER");
    if (!by || strcmp(by, "PCI_BUS_ID"))
        std::stable_sort(order.begin(), order.end(), [](const Visible& a, const Visible& b) {
            return boards()[a.board].model->bf16 > boards()[b.board].model->bf16;
        });
    const char* set = getenv("CUDA_VISIBLE_DEVICES");
    if (!set) return order;
    std::vector<Visible> found;
    for (auto one : split(set, ',')) {
        while (!one.empty() && one[0] == ' ') one.erase(0, 1);
        bool known = false;
        if (!one.empty() && isdigit(one[0])) {
            size_t n = atoi(one.c_str());
            if ((known = n < order.size())) found.push_back(order[n]);
        } else if (one.rfind("GPU-", 0) == 0 || one.rfind("MIG-", 0) == 0) {
            for (size_t b = 0; b < boards().size() && !known; b++)
                for (int m = boards()[b].mig ? 0 : -1; m < boards()[b].mig && !known; m++) {
                    Visible gpu{(int)b, m};
                    bool board = m <= 0 && boards()[b].uuid.rfind(one, 0) == 0;
                    if ((known = board || uuid_of(gpu).rfind(one, 0) == 0)) found.push_back(gpu);
                }
        }
        if (!known) break;
    }
    return found;
}

std::vector<Visible>& visible() {
    static auto* found = new std::vector<Visible>(read_visible());
    return *found;
}

static SharedState* map_shared() {
    const char* tag = getenv("FAKECUDA_TAG");
    std::string name = std::string("/dev/shm/fakecuda-") + (tag ? tag : "0");
    int file = open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    void* mapped = MAP_FAILED;
    if (file >= 0 && ftruncate(file, sizeof(SharedState)) == 0)
        mapped = mmap(0, sizeof(SharedState), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (file >= 0) close(file);
    auto* state = mapped == MAP_FAILED ? (SharedState*)calloc(1, sizeof(SharedState)) : (SharedState*)mapped;
    for (auto& one : state->slots)  // the memory of processes that were killed is free again
        if (one.pid && kill(one.pid, 0) < 0 && errno == ESRCH) {
            for (int i = 0; i < MOST_GPUS; i++) __sync_fetch_and_sub(&state->used[i], one.used[i]);
            memset(&one, 0, sizeof one);
        }
    return state;
}

SharedState* shared_state() {
    static SharedState* state = map_shared();
    return state;
}

static Slot* mine;

Slot* slot() {
    if (mine && mine->pid == getpid()) return mine;
    LOCK;
    mine = nullptr;
    for (auto& one : shared_state()->slots)
        if (__sync_bool_compare_and_swap(&one.pid, 0, getpid())) {
            mine = &one;
            break;
        }
    if (!mine) {
        mine = (Slot*)calloc(1, sizeof(Slot));
        mine->pid = getpid();
    }
    return mine;
}

void live(Live kind, int device, int change) { __sync_fetch_and_add(&slot()->live[kind][device], change); }

// ---- counters
std::atomic<u64> counts[COUNTED_KINDS];
static const char* const COUNT_NAMES[] = {
#define X(name) #name,
    COUNTED(X)
#undef X
};
static const char* const LIVE_NAMES[] = {"events", "streams", "contexts", "graphs", "pinned"};

// For programs on the stand-in, through ctypes: the calls of a kind so far, and what is alive on a device.
API u64 fakecuda_count(const char* kind) {
    for (int i = 0; i < COUNTED_KINDS; i++)
        if (!strcmp(kind, COUNT_NAMES[i])) return counts[i];
    return ~0ull;
}
API u64 fakecuda_live(const char* kind, int device) {
    for (int i = 0; i < LIVE_KINDS; i++)
        if (!strcmp(kind, LIVE_NAMES[i])) return slot()->live[i][device];
    return ~0ull;
}

static void write_counts() {
    const char* path = getenv("FAKECUDA_COUNTS");
    FILE* out = path && counts[N_launch] ? fopen(path, "a") : nullptr;
    if (!out) return;
    std::string text = "{\"pid\": " + std::to_string(getpid());
    for (int i = 0; i < COUNTED_KINDS; i++)
        text += std::string(", \"") + COUNT_NAMES[i] + "\": " + std::to_string(counts[i]);
    text += ", \"live\": {";
    for (int kind = 0; kind < LIVE_KINDS; kind++) {
        text += std::string(kind ? ", \"" : "\"") + LIVE_NAMES[kind] + "\": [";
        for (int i = 0; i < device_count(); i++) text += (i ? ", " : "") + std::to_string(slot()->live[kind][i]);
        text += "]";
    }
    fprintf(out, "%s}}\n", text.c_str());
    fclose(out);
}

// ---- the truth: each operation with the time it was submitted, began and ended
struct Logged {
    Op::Type type;
    int device;
    unsigned stream;
    u64 host, start, end;
    size_t bytes;
    int copy;
    const char* name;
};
static std::vector<Logged>& logged = *new std::vector<Logged>;

void log_op(const Op& op, const Stream& stream, u64 start, u64 end) {
    static bool on = getenv("FAKECUDA_LOG") != nullptr;
    if (on) logged.push_back({op.type, stream.device, stream.id, op.host, start, end, op.bytes, op.copy, op.name});
}

static void write_log() {
    const char* folder = getenv("FAKECUDA_LOG");
    if (!folder || logged.empty()) return;
    std::string path = std::string(folder) + "/" + std::to_string(getpid()) + ".tsv";
    FILE* out = fopen(path.c_str(), "w");
    if (!out) return;
    static const char* const TYPES[] = {"kernel", "copy", "set", "collective", "record", "wait"};
    static const char* const COPIES[] = {"h2h", "h2d", "d2h", "d2d", "d2d"};
    for (auto& one : logged)
        fprintf(out, "%s\t%d\t%u\t%llu\t%llu\t%llu\t%zu\t%s\n", TYPES[one.type], one.device, one.stream,
                (unsigned long long)one.host, (unsigned long long)one.start, (unsigned long long)one.end, one.bytes,
                one.type == Op::COPY ? COPIES[one.copy] : one.name);
    fclose(out);
}

__attribute__((destructor)) static void leave() {
    write_counts();
    write_log();
    if (!mine || mine->pid != getpid()) return;
    for (int i = 0; i < MOST_GPUS; i++) __sync_fetch_and_sub(&shared_state()->used[i], mine->used[i]);
    memset(mine, 0, sizeof *mine);
}
