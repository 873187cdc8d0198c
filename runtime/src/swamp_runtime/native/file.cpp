#include "file.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "sha256.hpp"

namespace swamp {

namespace {

constexpr uint64_t MAX_HEADER = 8 << 20;
constexpr int ESCAPE = 255;
constexpr size_t META_BEGINS = 13 + 64 + 9;  // in the text of the metadata, after the checksum of 64 letters

struct Stream {
    std::string kind;
    std::string_view data;
    std::string described;  // the text that its part of the checksum begins with
};

size_t size_of(const std::string &kind) {
    static const std::map<std::string, size_t> sizes = {{"BOOL", 1}, {"U8", 1}, {"I8", 1}, {"I16", 2}, {"F16", 2}, {"BF16", 2},
                                                        {"I32", 4}, {"F32", 4}, {"I64", 8}, {"F64", 8}};
    auto found = sizes.find(kind);
    return found == sizes.end() ? 0 : found->second;
}

// Returns the number of elements, or throws where a shape is none or has more than 2^40.
int64_t elements(const Json &shape) {
    check(shape.is(Json::LIST) && shape.list.size() <= 32, "a tensor has no proper shape");
    int64_t product = 1;
    bool empty = false;
    for (const Json &side : shape.list) {
        check(side.is(Json::INTEGER) && side.integer >= 0, "a tensor has no proper shape");
        if (side.integer == 0) {
            empty = true;
            continue;
        }
        check(side.integer <= (int64_t(1) << 40) / product, "a tensor is too large");
        product *= side.integer;
    }
    return empty ? 0 : product;
}

std::vector<int64_t> sides(const Json &shape) {
    std::vector<int64_t> found;
    for (const Json &side : shape.list) found.push_back(side.integer);
    return found;
}

float half(uint16_t bits) {
    const int exponent = bits >> 10 & 31, fraction = bits & 1023;
    const float magnitude = exponent == 31  ? (fraction ? NAN : INFINITY)
                            : exponent == 0 ? std::ldexp(float(fraction), -24)
                                            : std::ldexp(float(fraction + 1024), exponent - 25);
    return bits & 0x8000 ? -magnitude : magnitude;
}

template <class T>
T read(std::string_view data, size_t index) {
    T value;
    std::memcpy(&value, data.data() + index * sizeof(T), sizeof(T));
    return value;
}

std::vector<float> floats(const std::string &kind, std::string_view data) {
    std::vector<float> found(data.size() / size_of(kind));
    for (size_t i = 0; i < found.size(); i++) {
        if (kind == "F32") {
            found[i] = read<float>(data, i);
        } else if (kind == "F16") {
            found[i] = half(read<uint16_t>(data, i));
        } else if (kind == "BF16") {
            const uint32_t bits = uint32_t(read<uint16_t>(data, i)) << 16;
            std::memcpy(&found[i], &bits, 4);
        } else {
            found[i] = float(read<double>(data, i));
        }
    }
    return found;
}

std::map<std::string, Stream> split(std::string_view content, std::string &metadata) {
    check(content.size() >= 8, "its header is cut off");
    uint64_t length = 0;
    for (int i = 7; i >= 0; i--) length = length << 8 | uint8_t(content[size_t(i)]);
    check(length <= std::min<uint64_t>(content.size() - 8, MAX_HEADER), "its header is cut off or too long");
    const Json header = JsonReader::read(content.substr(8, length));
    const std::string_view data = content.substr(8 + length);
    check(header.is(Json::TABLE), "its header is no table");
    std::map<std::string, Stream> streams;
    std::vector<std::pair<int64_t, int64_t>> ranges;
    for (const auto &[name, entry] : header.table) {
        if (name == "__metadata__") {
            const Json *text = entry.find("swamp");
            check(entry.table.size() == 1 && text && text->is(Json::TEXT), "its metadata are not those of a sparse network");
            metadata = text->text;
            continue;
        }
        const Json *kind = entry.find("dtype"), *shape = entry.find("shape"), *offsets = entry.find("data_offsets");
        check(entry.table.size() == 3 && kind && shape && offsets, "a stream is not described as it should be");
        check(kind->is(Json::TEXT) && size_of(kind->text), "a stream has an unknown type");
        check(offsets->list.size() == 2 && offsets->list[0].is(Json::INTEGER) && offsets->list[1].is(Json::INTEGER), "a stream has no place");
        const int64_t begin = offsets->list[0].integer, end = offsets->list[1].integer;
        check(0 <= begin && begin <= end && end <= int64_t(data.size()), "a stream lies outside of the file");
        check(end - begin == int64_t(size_of(kind->text)) * elements(*shape), "a stream's length is not what its shape says");
        std::string described = "[\"" + name + "\",\"" + kind->text + "\",[";
        for (size_t i = 0; i < shape->list.size(); i++) described += (i ? "," : "") + std::to_string(shape->list[i].integer);
        ranges.emplace_back(begin, end);
        streams[name] = {kind->text, data.substr(size_t(begin), size_t(end - begin)), described + "]]"};
    }
    std::sort(ranges.begin(), ranges.end());
    int64_t last = 0;
    for (auto [begin, end] : ranges) {
        check(begin == last, "its streams overlap or leave gaps");
        last = end;
    }
    check(last == int64_t(data.size()), "its streams overlap or leave gaps");
    return streams;
}

// The text of the metadata is {"checksum":"…","meta":…}; what is hashed is the text of meta as it stands there.
Json checked_meta(const std::map<std::string, Stream> &streams, const std::string &metadata) {
    static const std::string before = "{\"checksum\":\"", between = "\",\"meta\":";
    constexpr size_t begin = META_BEGINS;
    const bool right = metadata.size() > begin && metadata.compare(0, before.size(), before) == 0 &&
                       metadata.compare(before.size() + 64, between.size(), between) == 0 && metadata.back() == '}';
    check(right, "its metadata have other entries than checksum and meta");
    const std::string text = metadata.substr(begin, metadata.size() - begin - 1);
    Sha256 sum;
    for (const auto &[name, stream] : streams) {
        sum.add(stream.described);
        sum.add(stream.data);
    }
    sum.add(text);
    check(sum.hexadecimal() == metadata.substr(before.size(), 64), "its checksum is wrong");
    return JsonReader::read(text);
}

std::vector<uint32_t> survivors(const std::string &code, std::string_view bytes, int64_t length, const std::string &name) {
    std::vector<uint32_t> found;
    if (code == "bits") {
        for (size_t i = 0; i < bytes.size(); i++)
            for (int bit = 0; bit < 8; bit++)
                if (uint8_t(bytes[i]) >> (7 - bit) & 1) found.push_back(uint32_t(8 * i) + uint32_t(bit));
        check(found.empty() || found.back() < length, name + " has survivors beyond its end");
        return found;
    }
    int64_t at = 0;
    for (char byte : bytes) {
        const int gap = uint8_t(byte);
        at += gap;
        if (gap < ESCAPE) {
            check(at < length, "the positions of " + name + " do not end where it ends");
            found.push_back(uint32_t(at++));
        }
    }
    check(at <= length && length < at + ESCAPE, "the positions of " + name + " do not end where it ends");
    return found;
}

void read_pruned(File &file, const Json &entries, const std::map<std::string, Stream> &streams) {
    const Stream &values = streams.at("values"), &positions = streams.at("positions");
    const bool whole = values.kind == "I8";
    check(positions.kind == "U8" && (whole || values.kind == "F32" || values.kind == "F16" || values.kind == "BF16"),
          "values or positions have a wrong type");
    check(whole == (streams.count("scales") != 0) && (!whole || streams.at("scales").kind == "F32"), "int8 values and scales belong together");
    check(entries.is(Json::LIST), "its list of pruned tensors is none");
    size_t value = 0, byte = 0, scale = 0;
    const size_t width = size_of(values.kind);
    for (const Json &entry : entries.list) {
        check(entry.list.size() == 5, "a pruned tensor is not described as it should be");
        const Json &name = entry.list[0], &shape = entry.list[1], &code = entry.list[2], &count = entry.list[3], &size = entry.list[4];
        check(name.is(Json::TEXT) && code.is(Json::TEXT) && (code.text == "bits" || code.text == "gaps") && count.is(Json::INTEGER) &&
                  size.is(Json::INTEGER) && count.integer >= 0 && size.integer >= 0,
              "a pruned tensor is not described as it should be");
        const int64_t length = elements(shape), bytes = size.integer;
        const bool fits = code.text == "bits" ? bytes == (length + 7) / 8 : bytes <= length && length <= 256 * bytes + ESCAPE - 1;
        check(fits && length <= UINT32_MAX && count.integer <= length, name.text + " cannot have so many survivors in so many bytes");
        check(size_t(bytes) <= positions.data.size() - byte, "it holds fewer positions than its tensors need");
        check(size_t(count.integer) <= values.data.size() / width - value, "it holds fewer values than survivors");
        Tensor &tensor = file.tensors[name.text];
        check(!tensor.pruned, "a tensor is named twice");
        tensor.pruned = true;
        tensor.shape = sides(shape);
        tensor.positions = survivors(code.text, positions.data.substr(byte, size_t(bytes)), length, name.text);
        check(int64_t(tensor.positions.size()) == count.integer, name.text + " has another number of survivors than it says");
        const std::string_view part = values.data.substr(value * width, size_t(count.integer) * width);
        if (whole) {
            tensor.integers.assign(reinterpret_cast<const int8_t *>(part.data()), reinterpret_cast<const int8_t *>(part.data()) + part.size());
            check(std::find(tensor.integers.begin(), tensor.integers.end(), -128) == tensor.integers.end(), name.text + " holds -128");
            const std::string_view all = streams.at("scales").data;
            const auto rows = size_t(tensor.rows());
            check(rows <= all.size() / 4 - scale, "it holds fewer scales than its tensors have rows");
            tensor.scales = floats("F32", all.substr(4 * scale, 4 * rows));
            scale += rows;
        } else {
            tensor.values = floats(values.kind, part);
        }
        for (float number : whole ? tensor.scales : tensor.values) check(std::isfinite(number), name.text + " holds a number that is not finite");
        value += size_t(count.integer);
        byte += size_t(bytes);
    }
    check(byte == positions.data.size() && value * width == values.data.size(), "it holds more values or positions than its tensors need");
    check(!whole || 4 * scale == streams.at("scales").data.size(), "it holds more scales than its tensors have rows");
}

void read_dense(File &file, const Json &entries, const std::map<std::string, Stream> &streams) {
    check(entries.is(Json::LIST), "its list of dense tensors is none");
    std::map<std::string, size_t> used;
    std::set<std::string> needed = {"values", "positions"};
    if (streams.count("scales")) needed.insert("scales");
    for (const Json &entry : entries.list) {
        check(entry.list.size() == 3 && entry.list[0].is(Json::TEXT) && entry.list[1].is(Json::TEXT), "a dense tensor is not described as it should be");
        const std::string &name = entry.list[0].text, &kind = entry.list[1].text, stream = "dense." + kind;
        check(size_of(kind) && streams.count(stream) && streams.at(stream).kind == kind, "a dense tensor has no stream");
        needed.insert(stream);
        const size_t bytes = size_of(kind) * size_t(elements(entry.list[2])), begin = used[stream];
        check(bytes <= streams.at(stream).data.size() - begin, name + " is cut off");
        check(bytes / size_of(kind) <= UINT32_MAX, "a tensor is too large");
        used[stream] += bytes;
        check(!file.tensors.count(name), "a tensor is named twice");
        Tensor &tensor = file.tensors[name];
        tensor.shape = sides(entry.list[2]);
        if (kind[0] == 'F' || kind == "BF16") tensor.values = floats(kind, streams.at(stream).data.substr(begin, bytes));
    }
    for (const auto &[name, length] : used) check(length == streams.at(name).data.size(), "it holds data of no tensor");
    for (const auto &[name, stream] : streams) check(needed.count(name) != 0, "its streams are not those that its tensors need");
}

Kind kind_of(const Json *kind, bool tokens) {
    check(kind && kind->is(Json::TEXT), "its program has an input or output of no kind");
    if (kind->text == "image") return Kind::IMAGE;
    if (kind->text == "vector") return Kind::VECTOR;
    if (kind->text == "sequence") return Kind::SEQUENCE;
    if (kind->text == "signal") return Kind::SIGNAL;
    check(tokens && kind->text == "tokens", "its program has an input or output of an unknown kind");
    return Kind::TOKENS;
}

// Callers get names as texts that end with a zero.
bool is_name(const std::string &text) { return !text.empty() && text.find('\0') == std::string::npos; }

void read_program(File &file, const Json &program) {
    const Json *inputs = program.find("inputs"), *nodes = program.find("nodes"), *outputs = program.find("outputs");
    check(inputs && nodes && outputs && program.table.size() == 3 && inputs->is(Json::LIST) && nodes->is(Json::LIST) && outputs->is(Json::LIST),
          "its program is none");
    check(!inputs->list.empty() && !outputs->list.empty(), "its program is none");
    check(inputs->list.size() + nodes->list.size() + outputs->list.size() < 100000, "its program is too long");
    std::set<std::string> names;
    for (const Json &given : inputs->list) {
        const Json *name = given.find("name"), *size = given.find("size");
        check(name && name->is(Json::TEXT) && size && size->list.size() == 3, "an input of its program is not described as it should be");
        check(is_name(name->text) && names.insert(name->text).second, "two inputs of its program have one name, or one has none");
        Input input{name->text, kind_of(given.find("kind"), true), {}};
        for (size_t i = 0; i < 3; i++) {
            const Json &side = size->list[i];
            const bool free = side.is(Json::NONE);
            check(free || (side.is(Json::INTEGER) && side.integer > 0 && side.integer <= (1 << 24)), "an input of its program has no proper size");
            input.sizes[i] = free ? -1 : side.integer;
        }
        const auto [channels, height, width] = input.sizes;
        const bool right = input.kind == Kind::IMAGE      ? channels > 0
                           : input.kind == Kind::VECTOR   ? channels > 0 && height == 1 && width == 1
                           : input.kind != Kind::TOKENS   ? channels > 0 && height == 1
                                                          : channels == 1 && height == 1;
        check(right, "an input of its program has no proper size");
        file.inputs.push_back(input);
    }
    for (const Json &given : nodes->list) {
        const Json *op = given.find("op"), *in = given.find("in");
        check(op && op->is(Json::TEXT) && in && in->is(Json::LIST), "a node of its program is not described as it should be");
        Node node{op->text, {}, given};
        for (const Json &value : in->list) {
            const auto limit = int64_t(file.inputs.size() + file.nodes.size());
            check(value.is(Json::INTEGER) && value.integer >= 0 && value.integer < limit, "a node of its program reads what is not there yet");
            node.in.push_back(int(value.integer));
        }
        file.nodes.push_back(std::move(node));
    }
    for (const Json &given : outputs->list) {
        const Json *name = given.find("name"), *value = given.find("value");
        check(name && name->is(Json::TEXT) && is_name(name->text) && value && value->is(Json::INTEGER) && value->integer >= 0 &&
                  value->integer < int64_t(file.inputs.size() + file.nodes.size()),
              "an output of its program is not described as it should be");
        file.outputs.push_back({name->text, int(value->integer), kind_of(given.find("kind"), false)});
    }
}

// The text of `about`, which is the first entry of meta, because keys are sorted and have no spaces around them.
std::string about_text(const std::string &metadata) {
    static const std::string before = "{\"about\":";
    if (metadata.compare(META_BEGINS, before.size(), before) != 0) return "{}";
    size_t at = META_BEGINS + before.size();
    const size_t first = at;
    int depth = 0;
    bool quoted = false;
    for (; at < metadata.size(); at++) {
        const char letter = metadata[at];
        if (quoted) {
            if (letter == '\\') at++;
            quoted = letter != '"';
        } else if (letter == '"') {
            quoted = true;
        } else if (letter == '{' || letter == '[') {
            depth++;
        } else if ((letter == '}' || letter == ']') && --depth == 0) {
            return metadata.substr(first, at + 1 - first);
        }
    }
    return "{}";
}

}  // namespace

int64_t Tensor::length() const {
    int64_t product = 1;
    for (int64_t side : shape) product *= side;
    return product;
}

float Tensor::value(size_t index) const {
    if (integers.empty()) return values[index];
    return float(integers[index]) * scales[size_t(int64_t(position(index)) / std::max<int64_t>(length() / rows(), 1))];
}

const Json &Node::attribute(const char *name) const {
    const Json *found = attributes.find(name);
    check(found, op + " has no " + name);
    return *found;
}

bool Node::has(const char *name) const {
    const Json *found = attributes.find(name);
    return found && !found->is(Json::NONE);
}

int64_t Node::integer(const char *name, int64_t least, int64_t most) const {
    const Json &found = attribute(name);
    check(found.is(Json::INTEGER) && found.integer >= least && found.integer <= most, std::string("the ") + name + " of " + op + " is none");
    return found.integer;
}

double Node::number(const char *name) const {
    const Json &found = attribute(name);
    check(found.is_number(), std::string("the ") + name + " of " + op + " is no number");
    return found.number();
}

bool Node::boolean(const char *name) const {
    const Json &found = attribute(name);
    check(found.is(Json::BOOLEAN), std::string("the ") + name + " of " + op + " is neither true nor false");
    return found.boolean;
}

const std::string &Node::text(const char *name) const {
    const Json &found = attribute(name);
    check(found.is(Json::TEXT), std::string("the ") + name + " of " + op + " is no text");
    return found.text;
}

std::pair<int64_t, int64_t> Node::pair(const char *name, int64_t least, int64_t most) const {
    const Json &found = attribute(name);
    check(found.list.size() == 2, std::string("the ") + name + " of " + op + " are not two numbers");
    for (const Json &one : found.list)
        check(one.is(Json::INTEGER) && one.integer >= least && one.integer <= most, std::string("the ") + name + " of " + op + " are not two proper numbers");
    return {found.list[0].integer, found.list[1].integer};
}

size_t File::num_dimensions(const Node &node, const char *attribute) const {
    auto found = tensors.find(node.text(attribute));
    return found == tensors.end() ? 0 : found->second.shape.size();
}

const Tensor &File::tensor(const Node &node, const char *attribute, size_t num_dimensions) const {
    auto found = tensors.find(node.text(attribute));
    check(found != tensors.end(), node.op + " names a tensor that is not there: " + node.text(attribute));
    const Tensor &tensor = found->second;
    check(tensor.shape.size() == num_dimensions && (tensor.pruned || int64_t(tensor.values.size()) == tensor.length()),
          "the tensor " + node.text(attribute) + " has a shape or type that " + node.op + " does not take");
    return tensor;
}

File read_file(std::string_view content) {
    std::string metadata;
    const auto streams = split(content, metadata);
    const Json meta = checked_meta(streams, metadata);
    const Json *format = meta.find("format"), *about = meta.find("about"), *pruned = meta.find("pruned"), *dense = meta.find("dense");
    check(format && format->is(Json::INTEGER), "its meta has other entries than it should");
    check(format->integer == 1 || format->integer == 2, "its format is " + std::to_string(format->integer) + ", and this reader knows 1 and 2");
    check(about && about->is(Json::TABLE) && pruned && dense && streams.count("values") && streams.count("positions"),
          "its meta has other entries than it should");
    File file;
    file.about = about_text(metadata);
    read_pruned(file, *pruned, streams);
    read_dense(file, *dense, streams);
    const Json *program = meta.find("program");
    check(program && program->is(Json::TABLE),
          "it holds weights, but not how its network computes; its export says why, or was made by an older swamp, and "
          "swamp.load_sparse reads it into a model of torch");
    read_program(file, *program);
    return file;
}

}  // namespace swamp
