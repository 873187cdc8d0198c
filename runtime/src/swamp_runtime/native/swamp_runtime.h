/* Run the sparse networks of .swamp files, on a CPU.
 *
 *     swamp_model *model = swamp_load("model.swamp", 0);
 *     if (!model) { puts(swamp_error()); return 1; }
 *     const void *inputs[] = {images};
 *     float *outputs[] = {logits};
 *     if (swamp_run(model, batch, NULL, inputs, outputs)) puts(swamp_error());
 *     swamp_free(model);
 *
 * A file is data and is never executed. Functions that can fail say why in swamp_error(), one sentence, for the calling thread.
 * One model may be run by several threads at a time.
 */
#ifndef SWAMP_RUNTIME_H
#define SWAMP_RUNTIME_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define SWAMP_API __attribute__((visibility("default")))
#else
#define SWAMP_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef struct swamp_model swamp_model;

/* How a caller's array is laid out, for a batch of B: IMAGE (B, C, H, W), VECTOR (B, C), SEQUENCE (B, L, C), SIGNAL (B, C, L),
 * all float; TOKENS (B, L), int64_t. */
enum swamp_kind { SWAMP_IMAGE, SWAMP_VECTOR, SWAMP_SEQUENCE, SWAMP_SIGNAL, SWAMP_TOKENS };

typedef struct {
    const char *name;
    int32_t kind;
    int64_t channels, height, width; /* -1 where the call decides; the width of a sequence is its length */
} swamp_port;

/* Sizes that the network leaves to the caller; the others are ignored. */
typedef struct {
    int64_t height, width, length;
} swamp_sizes;

/* Load a network. `threads` is the number of threads that a call may use, 0 for one on each core. NULL: it cannot be loaded. */
SWAMP_API swamp_model *swamp_load(const char *path, int threads);
SWAMP_API swamp_model *swamp_load_bytes(const void *content, size_t length, int threads);
SWAMP_API void swamp_free(swamp_model *model);

SWAMP_API int swamp_num_inputs(const swamp_model *model);
SWAMP_API int swamp_num_outputs(const swamp_model *model);
SWAMP_API swamp_port swamp_input(const swamp_model *model, int index);
SWAMP_API swamp_port swamp_output(const swamp_model *model, int index);

/* Settle the free sizes of the outputs (channels, height, width of each). `sizes` may be NULL where nothing is free. 0: done. */
SWAMP_API int swamp_output_sizes(swamp_model *model, const swamp_sizes *sizes, int64_t *channels_height_width);

/* Compute a batch. 0: done. */
SWAMP_API int swamp_run(swamp_model *model, int64_t batch, const swamp_sizes *sizes, const void *const *inputs, float *const *outputs);

/* What the file says about its network, as a JSON text that lives as long as the model; and how each layer is computed, as one that lives
 * until the calling thread asks again. NULL: the layers cannot be computed. */
SWAMP_API const char *swamp_about(const swamp_model *model);
SWAMP_API const char *swamp_layers(swamp_model *model, const swamp_sizes *sizes);

/* Use a BLAS for layers that are nearly dense: a function like cblas_sgemm with row-major matrices, C = A B + beta C. */
typedef void (*swamp_gemm)(int64_t m, int64_t n, int64_t k, const float *a, int64_t lda, const float *b, int64_t ldb, float beta, float *c,
                           int64_t ldc);
SWAMP_API void swamp_use_gemm(swamp_gemm gemm);

/* The instruction set in use: "avx512", "avx2" or "generic". */
SWAMP_API const char *swamp_instructions(void);

SWAMP_API const char *swamp_error(void);

#ifdef __cplusplus
}
#endif
#endif
