// Loads and runs damaged and forged files, under AddressSanitizer and UndefinedBehaviorSanitizer.
//
// Standard input holds files, each after its length (four bytes, little-endian). For each file a line is written: what it was refused for, or
// "run". A sanitizer's finding, more memory than the file can account for, and a file that takes long end the process.

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <random>

#include "api.cpp"  // the plan's costs are none of the library's functions

extern "C" {  // of the sanitizer, whose headers are not everywhere
int __sanitizer_install_malloc_and_free_hooks(void (*)(const volatile void *, size_t), void (*)(const volatile void *));
size_t __sanitizer_get_allocated_size(const volatile void *);
}

namespace {

constexpr unsigned MAX_SECONDS = 60;  // for a file; sanitizers are slow, and so are busy machines
constexpr double MAX_COST = 3e6;  // vector operations; what takes more is loaded, but not run
constexpr int64_t MAX_GIVEN = 1 << 16;  // numbers of an input or output
constexpr size_t BASE = 640 << 20, PER_BYTE = 1024, PER_NUMBER = 4096;  // bytes that a file may take, more for each of its own and each number given

std::atomic<size_t> in_use{0};  // threads of a network allocate as well
size_t allowed = SIZE_MAX;

void end_with(const char *why) {
    const ssize_t written = write(2, why, strlen(why));
    _exit(written < 0 ? 98 : 97);
}

void on_allocation(const volatile void *, size_t size) {
    if ((in_use += size) > allowed) {
        allowed = SIZE_MAX;
        end_with("ERROR: a file takes more memory than it may\n");
    }
}

void on_release(const volatile void *pointer) { in_use -= __sanitizer_get_allocated_size(pointer); }

void on_alarm(int) { end_with("ERROR: a file takes too long\n"); }

void multiply(int64_t m, int64_t n, int64_t k, const float *a, int64_t lda, const float *b, int64_t ldb, float beta, float *c, int64_t ldc) {
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            float sum = beta ? c[i * ldc + j] : 0.0f;
            for (int64_t l = 0; l < k; l++) sum += a[i * lda + l] * b[l * ldb + j];
            c[i * ldc + j] = sum;
        }
}

// Runs a network once with random inputs, whose memory is exactly as long as it must be; with `threads` also that model, which must give the
// same numbers. Returns what happened.
std::string run(swamp_model *model, swamp_model *threads, std::mt19937 &draw) {
    static const int64_t lengths[] = {1, 2, 3, 5, 8, 17, 33}, batches[] = {1, 1, 2, 5, 17};
    const auto length = [&] { return lengths[draw() % 7]; };
    const swamp_sizes sizes{length(), length(), length()};
    const int64_t batch = batches[draw() % 5];
    std::vector<std::vector<float>> numbers;
    std::vector<std::vector<int64_t>> tokens;
    std::vector<const void *> inputs;
    for (int i = 0; i < swamp_num_inputs(model); i++) {
        const swamp_port port = swamp_input(model, i);
        const int64_t height = port.height < 0 ? sizes.height : port.height;
        const int64_t width = port.width >= 0 ? port.width : port.kind == SWAMP_IMAGE ? sizes.width : sizes.length;
        const int64_t count = batch * port.channels * height * width;
        if (count > MAX_GIVEN) return "an input is too large for a test";
        allowed += PER_NUMBER * size_t(count);
        if (port.kind == SWAMP_TOKENS) {
            std::vector<int64_t> given(static_cast<size_t>(count));
            for (int64_t &token : given) token = draw() % 400 ? int64_t(draw() % 5) : int64_t(draw()) - INT32_MAX;
            tokens.push_back(std::move(given));
            inputs.push_back(tokens.back().data());
        } else {
            std::vector<float> given(static_cast<size_t>(count));
            for (float &number : given) number = float(draw() % 2001) / 500 - 2;
            if (draw() % 50 == 0) given[draw() % given.size()] = draw() % 2 ? NAN : INFINITY;
            numbers.push_back(std::move(given));
            inputs.push_back(numbers.back().data());
        }
    }
    double cost = 0;
    try {
        for (const Step &step : model->prepare(sizes, batch)->plan.steps) cost += step.cost;
    } catch (const std::exception &error) {
        return error.what();
    }
    if (cost * double(batch) > MAX_COST) return "too many computations for a test";
    std::vector<int64_t> shapes(3 * size_t(swamp_num_outputs(model)));
    if (swamp_output_sizes(model, &sizes, shapes.data())) return swamp_error();
    std::vector<std::vector<float>> results;
    std::vector<float *> outputs;
    for (size_t i = 0; i < shapes.size(); i += 3) {
        const int64_t count = batch * shapes[i] * shapes[i + 1] * shapes[i + 2];
        if (count > MAX_GIVEN) return "an output is too large for a test";
        results.emplace_back(static_cast<size_t>(count));
        outputs.push_back(results.back().data());
    }
    const char *layers = swamp_layers(model, &sizes);
    if (!layers) return swamp_error();
    const bool any_dense = std::strstr(layers, "\"dense\"");  // which is decided by measurement
    if (swamp_run(model, batch, &sizes, inputs.data(), outputs.data())) return swamp_error();
    if (!threads) return "run";
    const std::vector<std::vector<float>> expected = results;
    if (swamp_run(threads, batch, &sizes, inputs.data(), outputs.data())) end_with("ERROR: threads fail where one thread does not\n");
    for (size_t i = 0; i < results.size() && !any_dense; i++)
        if (std::memcmp(results[i].data(), expected[i].data(), results[i].size() * sizeof(float))) end_with("ERROR: threads change the result\n");
    return "run";
}

std::string outcome(const std::vector<char> &content, std::mt19937 &draw) {
    swamp_model *model = swamp_load_bytes(content.data(), content.size(), 1);
    if (!model) return swamp_error();
    const bool several = draw() % 8 == 0;
    if (several) allowed += BASE;  // for a second model
    swamp_model *threads = several ? swamp_load_bytes(content.data(), content.size(), draw() % 4 ? 2 : 4) : nullptr;
    const std::string found = run(model, threads, draw);
    swamp_free(model);
    swamp_free(threads);
    return found;
}

}  // namespace

int main() {
    __sanitizer_install_malloc_and_free_hooks(on_allocation, on_release);
    signal(SIGALRM, on_alarm);
    swamp_use_gemm(multiply);
    banded_from = 0;  // small images in bands as well
    std::mt19937 draw(0);
    for (uint32_t length; std::fread(&length, sizeof length, 1, stdin) == 1;) {
        std::vector<char> content(length);
        if (length && std::fread(content.data(), length, 1, stdin) != 1) return 1;
        allowed = in_use + BASE + PER_BYTE * length;
        alarm(MAX_SECONDS);
        const std::string found = outcome(content, draw);
        alarm(0);
        allowed = SIZE_MAX;
        std::puts(found.c_str());
        std::fflush(stdout);
    }
}
