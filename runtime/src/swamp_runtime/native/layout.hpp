// Where the images of a plan lie in the workspace, and how their copies and borders are made.
#pragma once

#include "plan.hpp"

namespace swamp {

constexpr int64_t MAX_WORKSPACE = int64_t(1) << 30;  // numbers; distances are 32-bit integers

// Images of one height and width have the same positions, so that a tap is one distance for all of them.
struct Grid {
    int64_t pitch = 0, gap = 0;
};

// Set pitch, strides and copies of an image; returns its numbers of floats and bytes.
std::pair<int64_t, int64_t> lay_out(Image &image, const Grid &grid, int64_t num_stacked);

// Set what taps read beyond the edges to zero, after sums have written across them.
void clear_edges(const Image &image, Workspace &memory, int64_t channel, int64_t num_stacked);

// Make the int8 forms of a channel out of its numbers.
void finish_channel(const Image &image, Workspace &memory, int64_t channel, int64_t num_stacked);

int64_t pitch_of(int64_t height, int64_t width);

inline int64_t rounded_up(int64_t value, int64_t to) { return (value + to - 1) / to * to; }

}  // namespace swamp
