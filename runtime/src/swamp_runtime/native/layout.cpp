#include "layout.hpp"

#include <algorithm>
#include <cstring>

namespace swamp {

namespace {

constexpr int64_t VECTOR = 16, BLOCK = 64;  // numbers that are read at once, floats and int8

// Sets what int8 taps read beyond the left and right edges to what stands for zero.
void clear_sides(const Image &image, const Image::Bytes &bytes, uint8_t *memory, int64_t channel, int64_t num_stacked) {
    const auto zero = uint8_t(bytes.zero);
    const int64_t height = image.height(), width = image.size.width, pitch = image.pitch, around = image.gap > 0 ? 1 : 0;
    for (size_t copy = 0; copy < bytes.shifts.size(); copy++) {
        const int64_t shift = bytes.shifts[copy];
        if (!shift) continue;
        const int64_t begin = shift > 0 ? std::max<int64_t>(width - shift, 0) : 0, count = std::min(std::abs(shift), width);
        uint8_t *first = memory + bytes.form.offset + channel * bytes.form.stride + bytes.form.copies[copy] + shift + begin;
        for (int64_t example = 0; example < num_stacked; example++) {
            uint8_t *row = first + (example * (height + image.gap) - around) * pitch;
            for (int64_t y = -around; y < height + around; y++, row += pitch)
                for (int64_t x = 0; x < count; x++) row[x] = zero;
        }
    }
}

}  // namespace

int64_t pitch_of(int64_t height, int64_t width) {
    if (height == 1 || width % VECTOR == 0) return width;
    for (int64_t to : {VECTOR, VECTOR / 2})
        if (const int64_t up = rounded_up(width, to); up * 100 <= width * 115) return up;
    return width;
}

std::pair<int64_t, int64_t> lay_out(Image &image, const Grid &grid, int64_t num_stacked) {
    const int64_t channels = image.size.channels, height = image.height();
    image.pitch = grid.pitch;
    image.gap = grid.gap;
    image.rows = grid.gap + num_stacked * (height + grid.gap);
    image.num_positions = ((num_stacked - 1) * (height + grid.gap) + height) * grid.pitch;
    // Vectors of a few numbers lie close together: sums then read beyond them, but store no more than belongs to them.
    const int64_t plane = image.rows * image.pitch, before = image.gap ? VECTOR : 0;
    const bool close = !before && plane < VECTOR;
    // Relative to the image's memory until that is allocated, and such that the first pixel is aligned.
    image.offset = rounded_up(before + image.gap * image.pitch, VECTOR);
    image.stride = close ? plane : rounded_up(image.offset + plane - image.gap * image.pitch + VECTOR, VECTOR);
    const int64_t floats = image.has_floats ? rounded_up(channels * image.stride + 2 * VECTOR, VECTOR) : 0;
    int64_t bytes = 0;
    for (Image::Bytes &one : image.bytes) {
        int64_t far = 0;
        for (int64_t shift : one.shifts) far = std::max(far, std::abs(shift));
        const int64_t free = image.gap || far ? rounded_up(std::max(far, BLOCK), BLOCK) : 0;
        one.form.stride = free || plane >= BLOCK ? rounded_up(free + plane + BLOCK, BLOCK) : plane;
        one.form.num_copies = int32_t(one.shifts.size());
        one.copies.clear();
        for (size_t i = 0; i < one.shifts.size(); i++) one.copies.push_back(int64_t(i) * channels * one.form.stride - one.shifts[i]);
        one.form.copies = one.copies.data();
        one.form.offset = bytes + free + image.gap * image.pitch;
        one.form.inverse = 1 / one.scale;
        one.form.zero = one.zero;
        // Behind the last channel there is room for what a moved copy stores beyond its end.
        bytes += rounded_up(int64_t(one.shifts.size()) * channels * one.form.stride + free + 2 * BLOCK, BLOCK);
    }
    return {floats, bytes};
}

Target Image::target() const {
    Target target;
    target.has_floats = has_floats;
    target.offset = offset;
    target.stride = stride;
    target.num_bytes = int32_t(bytes.size());
    for (size_t i = 0; i < bytes.size(); i++) target.bytes[i] = bytes[i].form;
    return target;
}

void clear_edges(const Image &image, Workspace &memory, int64_t channel, int64_t num_stacked) {
    if (!kernels().keeps_sides)
        for (const Image::Bytes &one : image.bytes) clear_sides(image, one, memory.bytes, channel, num_stacked);
    if (!image.gap || num_stacked == 1) return;
    for (int64_t example = 0; example + 1 < num_stacked; example++) {
        const int64_t begin = (example * (image.height() + image.gap) + image.height()) * image.pitch, count = image.gap * image.pitch;
        if (image.has_floats) std::fill_n(image.plane(memory.floats, channel) + begin, count, 0.0f);
        for (const Image::Bytes &one : image.bytes)
            for (size_t copy = 0; copy < one.shifts.size(); copy++)
                std::fill_n(memory.bytes + one.form.offset + channel * one.form.stride + one.form.copies[copy] + one.shifts[copy] + begin, count,
                            uint8_t(one.zero));
    }
}

// Copies `count` bytes for each channel. Rows of the usual widths are copied without a call for each.
template <size_t COUNT>
void copy_rows(uint8_t *to, int64_t to_stride, const uint8_t *from, int64_t from_stride, int64_t channels, size_t count) {
    for (; channels > 0; channels--, to += to_stride, from += from_stride) std::memcpy(to, from, COUNT ? COUNT : count);
}

void copy_rows(uint8_t *to, int64_t to_stride, const uint8_t *from, int64_t from_stride, int64_t channels, size_t count) {
    const auto copy = count == 8 ? copy_rows<8> : count == 16 ? copy_rows<16> : count == 32 ? copy_rows<32> : count == 64 ? copy_rows<64> : count == 128 ? copy_rows<128> : copy_rows<0>;
    copy(to, to_stride, from, from_stride, channels, count);
}

// Visits the rows at the upper or lower edge of a band, within or beyond it: those of the first channel, with their number of bytes, the
// distance to those of the next channel, and the number of channels.
template <class Visit>
void Edges::each_edge(Workspace &memory, bool below, bool beyond, Visit visit) const {
    for (const Image *image : images) {
        const auto visit_rows = [&](auto *first, int64_t reach, int64_t stride) {
            const int64_t row = below ? image->height() - (beyond ? 0 : reach) : beyond ? -reach : 0, width = int64_t(sizeof *first);
            visit(reinterpret_cast<uint8_t *>(first + row * image->pitch), reach * image->pitch * width, stride * width, image->size.channels);
        };
        if (image->has_floats && image->reach) visit_rows(image->plane(memory.floats, 0), image->reach, image->stride);
        for (const Image::Bytes &one : image->bytes)
            for (size_t copy = 0; one.reach && copy < one.shifts.size(); copy++)
                visit_rows(memory.bytes + one.form.offset + one.form.copies[copy] + one.shifts[copy], one.reach, one.form.stride);
    }
}

Edges::Edges(std::vector<const Image *> given) : images(std::move(given)) {
    for (const Image *image : images) {
        side += image->size.channels * image->reach * image->pitch * int64_t(sizeof(float));
        for (const Image::Bytes &one : image->bytes) side += image->size.channels * one.reach * image->pitch * int64_t(one.shifts.size());
    }
    side = rounded_up(side, 2 * BLOCK);
}

bool Edges::has_neighbour(const Workspace &memory, int64_t band, bool below) const {
    return below ? band < int64_t(memory.first->others.size()) : band > 0;
}

void Edges::prepare(Workspace &memory, int64_t band, int64_t turn) const {
#if defined(__x86_64__)
    for (const bool below : {false, true})
        for (int64_t i = 0; has_neighbour(memory, band, below) && i < side; i += BLOCK)
            asm volatile("prefetchw %0" : : "m"(memory.edges[turn % 2][below * side + i]));
#endif
}

void Edges::send(Workspace &memory, int64_t band, int64_t turn) const {
    for (const bool below : {false, true}) {
        if (!has_neighbour(memory, band, below)) continue;
        uint8_t *to = memory.edges[turn % 2] + below * side;
        each_edge(memory, below, false, [&](const uint8_t *rows, int64_t count, int64_t stride, int64_t channels) {
            copy_rows(to, count, rows, stride, channels, size_t(count));
            to += channels * count;
        });
    }
}

void Edges::receive(Workspace &memory, int64_t band, int64_t turn) const {
    for (const bool below : {false, true}) {
        if (!has_neighbour(memory, band, below)) continue;
        const uint8_t *from = memory.of_band(below ? band + 1 : band - 1).edges[turn % 2] + !below * side;
        each_edge(memory, below, true, [&](uint8_t *rows, int64_t count, int64_t stride, int64_t channels) {
            copy_rows(rows, stride, from, count, channels, size_t(count));
            from += channels * count;
        });
    }
}

void finish_channel(const Image &image, Workspace &memory, int64_t channel, int64_t num_stacked) {
    const float *numbers = image.plane(memory.floats, channel);
    for (const Image::Bytes &one : image.bytes) kernels().store(one.form, memory.bytes, numbers, channel, image.num_positions);
    clear_edges(image, memory, channel, num_stacked);
}

}  // namespace swamp
