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

// The rows of a band that its neighbours read, those of several images one after the other: for the band above, then for the one below.
// They are put together because a neighbour that reads here and there in a band also fetches what lies beside it, which then costs the band
// much time to write. There are two places, taken in turns, so that one can be written while a neighbour still reads the other.
class Edges {
   public:
    explicit Edges(std::vector<const Image *> images);
    int64_t num_bytes() const { return 2 * side; }
    void prepare(Workspace &memory, int64_t band, int64_t turn) const;  // what will be sent, so that the processor need not wait for it then
    void send(Workspace &memory, int64_t band, int64_t turn) const;
    void receive(Workspace &memory, int64_t band, int64_t turn) const;

   private:
    std::vector<const Image *> images;
    int64_t side = 0;  // bytes for one neighbour
    bool has_neighbour(const Workspace &memory, int64_t band, bool below) const;
    template <class Visit>
    void each_edge(Workspace &memory, bool below, bool beyond, Visit visit) const;
};

// Make the int8 forms of a channel out of its numbers.
void finish_channel(const Image &image, Workspace &memory, int64_t channel, int64_t num_stacked);

int64_t pitch_of(int64_t height, int64_t width);

inline int64_t rounded_up(int64_t value, int64_t to) { return (value + to - 1) / to * to; }

}  // namespace swamp
