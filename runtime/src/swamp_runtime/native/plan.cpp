#include "plan.hpp"

#include <cstdlib>
#include <cstring>

#include "builder.hpp"

namespace swamp {

Plan::Plan(const File &file, const swamp_sizes &sizes, int64_t num_stacked, int64_t num_bands, bool measure, double max_numbers)
    : num_stacked(num_stacked), num_bands(num_bands), max_numbers(max_numbers) {
    kept.push_back(std::make_shared<Builder>(file, sizes, *this, measure));  // steps use its functions
}

std::unique_ptr<Workspace> Plan::workspace() const {
    auto first = one_workspace();
    for (int64_t band = 1; band < num_bands; band++) {
        first->others.push_back(one_workspace());
        first->others.back()->first = first.get();
    }
    return first;
}

std::unique_ptr<Workspace> Plan::one_workspace() const {
    constexpr size_t ALIGNED = 64, SLACK = 16384;  // bytes; sums read beyond the first and the last image
    auto made = std::make_unique<Workspace>();
    made->floats_memory = std::make_unique<float[]>(size_t(num_floats) + (ALIGNED + 2 * SLACK) / sizeof(float));
    made->bytes_memory = std::make_unique<uint8_t[]>(size_t(num_bytes) + ALIGNED + 2 * SLACK);
    const auto aligned = [](auto *pointer) {
        return reinterpret_cast<decltype(pointer)>((reinterpret_cast<uintptr_t>(pointer) + ALIGNED - 1) / ALIGNED * ALIGNED);
    };
    made->floats = aligned(made->floats_memory.get() + SLACK / sizeof(float));
    made->bytes = aligned(made->bytes_memory.get() + SLACK);
    made->edges_memory = std::make_unique<uint8_t[]>(2 * size_t(num_edge_bytes) + ALIGNED);
    made->edges[0] = aligned(made->edges_memory.get());
    made->edges[1] = made->edges[0] + num_edge_bytes;
    for (const Image &image : images)
        for (const Image::Bytes &one : image.bytes)  // beyond the edges is what stands for zero
            for (int32_t copy = 0; copy < one.form.num_copies; copy++)
                std::memset(made->bytes + one.form.offset - image.gap * image.pitch + one.form.copies[copy] + one.shifts[size_t(copy)], one.zero,
                            size_t(image.size.channels * one.form.stride));
    return made;
}

}  // namespace swamp
