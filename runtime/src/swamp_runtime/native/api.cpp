#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <list>
#include <new>

#include "layout.hpp"
#include "swamp_runtime.h"
#include "threads.hpp"

namespace swamp {

namespace {

thread_local std::string last_error, last_layers;
std::atomic<swamp_gemm> gemm{nullptr};
constexpr size_t MAX_BYTES = size_t(16) << 30;  // of a file
constexpr size_t MAX_PLANS = 32;  // of different sizes, that a model keeps
constexpr double MAX_NUMBERS = double(1 << 30) * 1.5, MAX_AT_LOAD = double(1 << 27);  // numbers of four bytes that a plan may take
constexpr double SHARED_FROM = 2000;  // vector operations from which on threads share a step
double banded_from = 4000;  // vector operations of a step, on average, from which on threads divide images into bands
constexpr int64_t MAX_BANDS = 16, MAX_BANDED_NUMBERS = 1 << 23;  // each band has a workspace, so that larger networks are not worth the memory
constexpr double ALONE_UP_TO = 20000;  // vector operations that one thread computes while the others wait for it

// Messages name parts of files, which may be long or not fit for a terminal.
std::string one_line(std::string text) {
    constexpr size_t LONGEST = 500;
    if (text.size() > LONGEST) {
        size_t end = LONGEST;
        while (end > 0 && (uint8_t(text[end]) & 0xC0) == 0x80) end--;  // not within a letter
        text = text.substr(0, end) + " …";
    }
    for (char &letter : text)
        if (uint8_t(letter) < 32 || letter == 127) letter = '?';
    return text;
}

template <class Function>
auto attempted(Function function, decltype(function()) otherwise) -> decltype(function()) {
    try {
        return function();
    } catch (const Malformed &error) {
        last_error = one_line(error.what());
    } catch (const std::bad_alloc &) {
        last_error = "the network takes more memory than there is";
    } catch (const std::exception &error) {
        last_error = one_line(error.what());
    }
    return otherwise;
}

const Kernels &best_kernels() {
#if defined(__x86_64__)
    const char *wanted = std::getenv("SWAMP_INSTRUCTIONS");
    __builtin_cpu_init();
    const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
                        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vnni");
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    if (avx512 && (!wanted || !std::strcmp(wanted, "avx512"))) return kernels_avx512();
    if (avx2 && (!wanted || !std::strcmp(wanted, "avx2") || !std::strcmp(wanted, "avx512"))) return kernels_avx2();
#endif
    return kernels_generic();
}

}  // namespace

const Kernels &kernels() {
    static const Kernels &found = best_kernels();
    return found;
}

swamp_gemm given_gemm() { return gemm; }

// A plan with the workspaces that are not in use.
struct Prepared {
    swamp_sizes sizes;
    Plan plan;
    std::mutex mutex;
    std::vector<std::unique_ptr<Workspace>> unused;

    std::once_flag banding;
    std::unique_ptr<Prepared> banded;  // the same network with its images in bands, if that is possible and worth it

    Prepared(const File &file, const swamp_sizes &sizes, int64_t num_stacked, double max_numbers)
        : sizes(sizes), plan(file, sizes, num_stacked, 1, true, max_numbers) {}
    Prepared(const File &file, const Prepared &whole, int64_t num_bands)
        : sizes(whole.sizes), plan(file, sizes, 1, num_bands, false, whole.plan.max_numbers) {}

    Prepared &in_bands(const File &file, int num_bands) {
        std::call_once(banding, [&] {
            if (num_bands > MAX_BANDS || plan.num_stacked > 1 || plan.num_floats + plan.num_bytes > MAX_BANDED_NUMBERS) return;
            double cost = 0;
            for (const Step &step : plan.steps) {
                if (step.how == "dense") return;  // a BLAS takes whole images
                cost += step.cost;
            }
            if (cost < banded_from * double(plan.steps.size())) return;
            try {
                banded = std::make_unique<Prepared>(file, *this, num_bands);
            } catch (const NoBands &) {
            } catch (const TooLarge &) {
            }
        });
        return banded ? *banded : *this;
    }

    std::unique_ptr<Workspace> take() {
        {
            std::lock_guard<std::mutex> lock(mutex);
            if (!unused.empty()) {
                auto found = std::move(unused.back());
                unused.pop_back();
                return found;
            }
        }
        return plan.workspace();
    }
    void give_back(std::unique_ptr<Workspace> workspace) {
        std::lock_guard<std::mutex> lock(mutex);
        unused.push_back(std::move(workspace));
    }
};

}  // namespace swamp

using namespace swamp;

struct swamp_model {
    File file;
    int num_threads;
    std::mutex mutex;
    std::list<std::shared_ptr<Prepared>> prepared;  // the one used last comes first
    std::shared_ptr<Team> team;
    pid_t team_process = 0;

    ~swamp_model() { forget_foreign_team(); }

    // The threads of a team stay in the process that was forked: nobody can wait for them here.
    void forget_foreign_team() {
        if (team && team_process != getpid()) new std::shared_ptr<Team>(std::move(team));
    }

    std::shared_ptr<Prepared> prepare(const swamp_sizes &given, int64_t batch, double max_numbers = MAX_NUMBERS) {
        swamp_sizes sizes{0, 0, 0};
        bool vectors = true;
        for (const Input &input : file.inputs) {
            if (input.kind == Kind::IMAGE && input.sizes[1] < 0) sizes.height = given.height;
            if (input.kind == Kind::IMAGE && input.sizes[2] < 0) sizes.width = given.width;
            if (input.kind != Kind::IMAGE && input.sizes[2] < 0) sizes.length = given.length;
            vectors = vectors && input.kind == Kind::VECTOR;
        }
        // Vectors are computed side by side, because one of them fills no register.
        const int64_t num_stacked = !vectors || batch < 4 ? 1 : batch < 16 ? 4 : 16;
        std::lock_guard<std::mutex> lock(mutex);
        for (auto found = prepared.begin(); found != prepared.end(); ++found) {
            const Prepared &one = **found;
            if (one.plan.num_stacked == num_stacked && one.sizes.height == sizes.height && one.sizes.width == sizes.width && one.sizes.length == sizes.length) {
                prepared.splice(prepared.begin(), prepared, found);
                return prepared.front();
            }
        }
        prepared.push_front(std::make_shared<Prepared>(file, sizes, num_stacked, max_numbers));
        if (prepared.size() > MAX_PLANS) prepared.pop_back();
        return prepared.front();
    }

    std::shared_ptr<Team> workers() {
        std::lock_guard<std::mutex> lock(mutex);
        if (num_threads == 1) return nullptr;
        forget_foreign_team();
        if (!team) team = std::make_shared<Team>(num_threads);
        team_process = getpid();
        return team;
    }
};

namespace swamp {

namespace {

bool is_shared(const Step &step) { return step.banded || (step.parts > 1 && step.cost >= SHARED_FROM); }

// Where the parts of a worker begin.
int64_t first_part(const Step &step, int worker, int num_workers) {
    if (worker == num_workers) return step.parts;
    if (step.costs.empty()) return step.parts * worker / num_workers;
    const auto num_channels = int64_t(step.costs.size()) - 1, num_tiles = step.parts / num_channels;
    const double tile = step.costs.back(), wanted = tile * double(num_tiles * worker) / num_workers;
    const auto num_before = int64_t(wanted / tile);
    const auto channel = std::lower_bound(step.costs.begin(), step.costs.end(), wanted - tile * double(num_before)) - step.costs.begin();
    return std::min(num_before * num_channels + channel, step.parts);
}

// One worker's share of a step.
void compute_share(const Step &step, Workspace &memory, const Block &block, int worker, int num_workers, int64_t turn) {
    if (step.banded) {
        Workspace &own = memory.of_band(worker);
        if (step.edges) step.edges->prepare(own, worker, turn);
        step.run(own, {block.first, block.count, block.inputs, block.outputs, worker}, 0, step.parts);
        if (step.edges) step.edges->send(own, worker, turn);
    } else if (is_shared(step)) {
        const int64_t first = first_part(step, worker, num_workers), last = first_part(step, worker + 1, num_workers);
        if (first < last) step.run(memory, block, first, last);
    } else if (worker == 0) {
        step.run(memory, block, 0, step.parts);
    }
}

// Compute steps, all workers side by side. They wait for each other between two steps unless one worker computes both of them.
void compute_together(const Step *first, const Step *last, Workspace &memory, const Block &block, Team &team) {
    Barrier barrier(team.size);
    std::atomic<bool> failed{false};
    team.together([&](int worker) {
        std::exception_ptr failure;
        uint64_t arrivals = 0;
        int64_t turn = 0;
        for (const Step *step = first; step != last; step++) {
            try {
                if (!failed) compute_share(*step, memory, block, worker, team.size, turn);
            } catch (...) {  // the others still wait at every barrier
                failure = std::current_exception();
                failed = true;
            }
            if (step->edges || (step + 1 != last && (is_shared(*step) || is_shared(step[1])))) barrier.wait(arrivals);
            if (step->edges) step->edges->receive(memory.of_band(worker), worker, turn++);
        }
        if (failure) std::rethrow_exception(failure);
    });
}

void compute_block(const Plan &plan, Workspace &memory, const Block &block, Team *team) {
    const Step *step = plan.steps.data(), *end = step + plan.steps.size();
    while (step != end) {
        const Step *last = step;
        while (team && last != end && (is_shared(*last) || last->cost < ALONE_UP_TO)) last++;
        if (std::any_of(step, last, is_shared)) {
            compute_together(step, last, memory, block, *team);
            step = last;
        } else {
            step->run(memory, block, 0, step->parts);
            step++;
        }
    }
}

// Compute blocks one after the other, all threads at each, or several at a time, one thread at each.
void compute(const File &file, Prepared &prepared, int64_t batch, const void *const *inputs, float *const *outputs, Team *team) {
    const Plan &plan = prepared.plan;
    const int64_t stacked = plan.num_stacked, num_blocks = (batch + stacked - 1) / stacked;
    const auto block = [&](int64_t index) { return Block{index * stacked, std::min(stacked, batch - index * stacked), inputs, outputs, 0}; };
    if (team && num_blocks >= team->size) {
        std::atomic<int64_t> next{0};
        team->together([&](int) {
            auto memory = prepared.take();
            for (int64_t index; (index = next.fetch_add(1)) < num_blocks;) compute_block(plan, *memory, block(index), nullptr);
            prepared.give_back(std::move(memory));
        });
        return;
    }
    Prepared &shared = team ? prepared.in_bands(file, team->size) : prepared;
    auto memory = shared.take();
    for (int64_t index = 0; index < num_blocks; index++) compute_block(shared.plan, *memory, block(index), team);
    shared.give_back(std::move(memory));
}

swamp_sizes given_sizes(const swamp_sizes *sizes) { return sizes ? *sizes : swamp_sizes{0, 0, 0}; }

swamp_model *loaded(std::string_view content, int threads) {
    auto model = std::make_unique<swamp_model>();
    model->file = read_file(content);
    const int cores = std::max(int(std::thread::hardware_concurrency()), 1);
    if (threads < 0 || threads > 1024) throw Malformed(std::to_string(threads) + " is no number of threads");
    model->num_threads = threads ? threads : cores;
    bool free = false;
    for (const Input &input : model->file.inputs)
        for (int64_t side : input.sizes) free = free || side < 0;
    if (free) return model.release();
    try {
        model->prepare({0, 0, 0}, 1, MAX_AT_LOAD);  // whatever is wrong with the program is said now
    } catch (const TooLarge &) {
        // A file alone must not take much memory: this one waits for a caller who gives inputs of the size that it states.
    }
    return model.release();
}

std::string whole_file(const char *path) {
    std::FILE *file = std::fopen(path, "rb");
    if (!file) throw Malformed(std::string(path) + " cannot be opened");
    std::string content;
    std::vector<char> part(1 << 16);
    for (size_t length; (length = std::fread(part.data(), 1, part.size(), file)) > 0 && content.size() <= MAX_BYTES;) content.append(part.data(), length);
    const bool failed = std::ferror(file);
    std::fclose(file);
    if (failed) throw Malformed(std::string(path) + " cannot be read");
    if (content.size() > MAX_BYTES) throw Malformed(std::string(path) + " is no sparse network: it is larger than 16 GiB");
    return content;
}

}  // namespace

}  // namespace swamp

extern "C" {

swamp_model *swamp_load_bytes(const void *content, size_t length, int threads) {
    return attempted([&] { return loaded({static_cast<const char *>(content), length}, threads); }, nullptr);
}

swamp_model *swamp_load(const char *path, int threads) {
    return attempted([&] { return loaded(whole_file(path), threads); }, nullptr);
}

void swamp_free(swamp_model *model) { delete model; }

int swamp_num_inputs(const swamp_model *model) { return int(model->file.inputs.size()); }

int swamp_num_outputs(const swamp_model *model) { return int(model->file.outputs.size()); }

swamp_port swamp_input(const swamp_model *model, int index) {
    const Input &input = model->file.inputs[size_t(index)];
    return {input.name.c_str(), int32_t(input.kind), input.sizes[0], input.sizes[1], input.sizes[2]};
}

swamp_port swamp_output(const swamp_model *model, int index) {
    const Output &output = model->file.outputs[size_t(index)];
    return {output.name.c_str(), int32_t(output.kind), -1, -1, -1};
}

int swamp_output_sizes(swamp_model *model, const swamp_sizes *sizes, int64_t *channels_height_width) {
    return attempted(
        [&] {
            for (const Size &size : model->prepare(given_sizes(sizes), 1)->plan.outputs) {
                *channels_height_width++ = size.channels;
                *channels_height_width++ = size.height;
                *channels_height_width++ = size.width;
            }
            return 0;
        },
        1);
}

int swamp_run(swamp_model *model, int64_t batch, const swamp_sizes *sizes, const void *const *inputs, float *const *outputs) {
    return attempted(
        [&] {
            if (batch < 1) return 0;
            const auto prepared = model->prepare(given_sizes(sizes), batch);
            const auto team = model->workers();
            std::unique_lock<std::mutex> turn;
            if (team) turn = std::unique_lock<std::mutex>(team->used, std::try_to_lock);
            compute(model->file, *prepared, batch, inputs, outputs, turn ? team.get() : nullptr);  // while another call has the team, this one works alone
            return 0;
        },
        1);
}

const char *swamp_about(const swamp_model *model) { return model->file.about.c_str(); }

const char *swamp_layers(swamp_model *model, const swamp_sizes *sizes) {
    return attempted(
        [&]() -> const char * {
            const auto prepared = model->prepare(given_sizes(sizes), 1);
            std::string text = "[";
            for (const Step &step : prepared->plan.steps) {
                if (step.name.empty()) continue;
                std::string name;
                for (char letter : step.name) name += letter == '"' || letter == '\\' || uint8_t(letter) < 32 ? '?' : letter;
                char rest[96];
                std::snprintf(rest, sizeof rest, "\",\"how\":\"%s\",\"density\":%.6f}", step.how.c_str(), step.density);
                text += (text.size() > 1 ? ",{\"name\":\"" : "{\"name\":\"") + name + rest;
            }
            last_layers = text + "]";
            return last_layers.c_str();
        },
        nullptr);
}

void swamp_use_gemm(swamp_gemm given) { gemm = given; }

const char *swamp_instructions(void) { return kernels().name; }

const char *swamp_error(void) { return last_error.c_str(); }
}
