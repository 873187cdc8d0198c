// The content of a .swamp file: tensors and the program that computes with them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "json.hpp"

namespace swamp {

// A tensor by its numbers that are not pruned. `positions` is empty where nothing is pruned: the numbers are then all of them.
struct Tensor {
    std::vector<int64_t> shape;
    bool pruned = false;
    std::vector<uint32_t> positions;  // of the survivors, ascending, in the tensor as one row
    std::vector<float> values;
    std::vector<int8_t> integers;  // int8 values, in place of `values`
    std::vector<float> scales;  // of the rows, where there are integers

    int64_t rows() const { return shape.empty() ? 1 : shape[0]; }
    int64_t length() const;
    size_t num_values() const { return integers.empty() ? values.size() : integers.size(); }
    uint32_t position(size_t index) const { return pruned ? positions[index] : uint32_t(index); }
    float value(size_t index) const;
};

struct Node {
    std::string op;
    std::vector<int> in;
    Json attributes;

    int64_t integer(const char *name, int64_t least, int64_t most) const;
    double number(const char *name) const;
    bool boolean(const char *name) const;
    const std::string &text(const char *name) const;
    std::pair<int64_t, int64_t> pair(const char *name, int64_t least, int64_t most) const;
    const Json &attribute(const char *name) const;
    bool has(const char *name) const;  // and it is not null
};

enum class Kind { IMAGE, VECTOR, SEQUENCE, SIGNAL, TOKENS };

struct Input {
    std::string name;
    Kind kind;
    int64_t sizes[3];  // -1 where it is free
};

struct Output {
    std::string name;
    int value;
    Kind kind;
};

struct File {
    std::map<std::string, Tensor> tensors;
    std::vector<Input> inputs;
    std::vector<Node> nodes;
    std::vector<Output> outputs;
    std::string about;  // JSON text

    size_t num_dimensions(const Node &node, const char *attribute) const;
    const Tensor &tensor(const Node &node, const char *attribute, size_t num_dimensions) const;
};

// Throws Malformed for everything that is wrong with the content. Memory grows with the length of the content alone.
File read_file(std::string_view content);

}  // namespace swamp
