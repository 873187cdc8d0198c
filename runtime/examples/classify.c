/* Classify a batch with a sparse network.
 *
 *     classify MODEL BATCH              of random numbers
 *     classify MODEL BATCH < numbers    of float32 numbers, as many as the batch has
 *
 * Prints the class of each example, the number of its largest output. The network must have one input and one output, and fixed sizes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "swamp_runtime.h"

static int failed(const char *why) {
    fprintf(stderr, "classify: %s\n", why);
    return 2;
}

static int fill(float *numbers, size_t count) {
    if (!isatty(0)) return fread(numbers, sizeof *numbers, count, stdin) == count;
    for (size_t i = 0; i < count; i++) numbers[i] = (float)rand() / (float)RAND_MAX;
    return 1;
}

static int64_t largest(const float *numbers, int64_t count) {
    int64_t best = 0;
    for (int64_t i = 1; i < count; i++)
        if (numbers[i] > numbers[best]) best = i;
    return best;
}

static int classify(swamp_model *model, int64_t batch) {
    int64_t sizes[3]; /* channels, height and width of the output */
    if (swamp_num_inputs(model) != 1 || swamp_num_outputs(model) != 1) return failed("the network has several inputs or outputs");
    const swamp_port input = swamp_input(model, 0);
    if (input.kind == SWAMP_TOKENS || input.height < 0 || input.width < 0) return failed("the network takes tokens, or inputs of any size");
    if (swamp_output_sizes(model, NULL, sizes)) return failed(swamp_error());
    const int64_t classes = sizes[0] * sizes[1] * sizes[2];
    const size_t count = (size_t)(batch * input.channels * input.height * input.width);
    float *numbers = malloc(count * sizeof *numbers), *scores = malloc((size_t)(batch * classes) * sizeof *scores);
    int status = 0;
    if (!numbers || !scores) {
        status = failed("there is not enough memory");
    } else if (!fill(numbers, count)) {
        status = failed("standard input holds fewer numbers than the batch needs");
    } else {
        const void *inputs[] = {numbers};
        float *outputs[] = {scores};
        if (swamp_run(model, batch, NULL, inputs, outputs)) status = failed(swamp_error());
        for (int64_t i = 0; !status && i < batch; i++) printf("%lld\n", (long long)largest(scores + i * classes, classes));
    }
    free(numbers);
    free(scores);
    return status;
}

int main(int argc, char **argv) {
    const long batch = argc == 3 ? strtol(argv[2], NULL, 10) : 0;
    if (batch < 1 || batch > 1000000) return failed("usage: classify MODEL BATCH [< float32 numbers]");
    swamp_model *model = swamp_load(argv[1], 0);
    if (!model) return failed(swamp_error());
    const int status = classify(model, batch);
    swamp_free(model);
    return status;
}
