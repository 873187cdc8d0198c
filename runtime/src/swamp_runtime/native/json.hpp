// Strict JSON: no name twice, no number that is not finite, nothing nested more than 64 deep, only valid UTF-8.
#pragma once

#include <charconv>
#include <cmath>
#include <cstdint>
#include <locale>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace swamp {

struct Malformed : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// The network may be sound, but takes more memory or time than is allowed.
struct TooLarge : Malformed {
    using Malformed::Malformed;
};

inline void check(bool good, const std::string &otherwise) {
    if (!good) throw Malformed(otherwise);
}

struct Json {
    enum Kind { NONE, BOOLEAN, INTEGER, REAL, TEXT, LIST, TABLE } kind = NONE;
    bool boolean = false;
    int64_t integer = 0;
    double real = 0;
    std::string text;
    std::vector<Json> list;
    std::map<std::string, Json> table;

    bool is(Kind wanted) const { return kind == wanted; }
    bool is_number() const { return kind == INTEGER || kind == REAL; }
    double number() const { return kind == INTEGER ? double(integer) : real; }
    const Json *find(const std::string &name) const {
        auto found = table.find(name);
        return found == table.end() ? nullptr : &found->second;
    }
};

class JsonReader {
   public:
    static Json read(std::string_view text) {
        JsonReader reader(text);
        Json value = reader.value(0);
        reader.space();
        check(reader.at == reader.text.size(), "its header is no JSON text");
        return value;
    }

   private:
    explicit JsonReader(std::string_view text) : text(text) {}

    std::string_view text;
    size_t at = 0, num_values = 0;
    static constexpr size_t MAX_VALUES = size_t(1) << 20;  // each takes more than a hundred bytes

    [[noreturn]] void refuse() const { throw Malformed("its header is no JSON text"); }
    char peek() const { return at < text.size() ? text[at] : '\0'; }
    void space() {
        while (at < text.size() && (text[at] == ' ' || text[at] == '\n' || text[at] == '\t' || text[at] == '\r')) at++;
    }
    bool take(char wanted) {
        space();
        if (peek() != wanted) return false;
        at++;
        return true;
    }
    bool word(std::string_view wanted) {
        if (text.substr(at, wanted.size()) != wanted) return false;
        at += wanted.size();
        return true;
    }

    Json value(int depth) {
        check(depth <= 64, "its header is nested more than 64 deep");
        check(++num_values <= MAX_VALUES, "its header is too long");
        space();
        Json found;
        const char first = peek();
        if (first == '{') return table(depth);
        if (first == '[') return list(depth);
        if (first == '"') {
            found.kind = Json::TEXT;
            found.text = string();
        } else if (word("true") || word("false")) {
            found.kind = Json::BOOLEAN;
            found.boolean = first == 't';
        } else if (!word("null")) {
            return number();
        }
        return found;
    }

    Json table(int depth) {
        Json found;
        found.kind = Json::TABLE;
        at++;
        if (take('}')) return found;
        do {
            space();
            if (peek() != '"') refuse();
            std::string name = string();
            if (!take(':')) refuse();
            check(found.table.emplace(std::move(name), value(depth + 1)).second, "its header names something twice");
        } while (take(','));
        if (!take('}')) refuse();
        return found;
    }

    Json list(int depth) {
        Json found;
        found.kind = Json::LIST;
        at++;
        if (take(']')) return found;
        do found.list.push_back(value(depth + 1));
        while (take(','));
        if (!take(']')) refuse();
        return found;
    }

    Json number() {
        const size_t begin = at;
        bool real = false;
        if (peek() == '-') at++;
        const size_t digits = at;
        while (peek() >= '0' && peek() <= '9') at++;
        if (at == digits || (text[digits] == '0' && at > digits + 1)) refuse();
        if (peek() == '.') {
            real = true;
            const size_t fraction = ++at;
            while (peek() >= '0' && peek() <= '9') at++;
            if (at == fraction) refuse();
        }
        if (peek() == 'e' || peek() == 'E') {
            real = true;
            at++;
            if (peek() == '+' || peek() == '-') at++;
            const size_t exponent = at;
            while (peek() >= '0' && peek() <= '9') at++;
            if (at == exponent) refuse();
        }
        Json found;
        const std::string written(text.substr(begin, at - begin));
        if (!real) {
            found.kind = Json::INTEGER;
            const auto [end, error] = std::from_chars(written.data(), written.data() + written.size(), found.integer);
            check(error == std::errc(), "its header holds a number that is too large");
            return found;
        }
        std::istringstream stream(written);
        stream.imbue(std::locale::classic());  // whatever language the program speaks
        found.kind = Json::REAL;
        stream >> found.real;
        check(!stream.fail() && std::isfinite(found.real), "its header holds a number that is too large");
        return found;
    }

    uint32_t hexadecimal() {
        uint32_t code = 0;
        for (int i = 0; i < 4; i++, at++) {
            const char letter = peek();
            const int digit = letter >= '0' && letter <= '9'   ? letter - '0'
                              : letter >= 'a' && letter <= 'f' ? letter - 'a' + 10
                              : letter >= 'A' && letter <= 'F' ? letter - 'A' + 10
                                                               : -1;
            if (digit < 0) refuse();
            code = code * 16 + uint32_t(digit);
        }
        return code;
    }

    void append(std::string &to, uint32_t code) {
        if (code < 0x80) {
            to += char(code);
        } else if (code < 0x800) {
            to += char(0xC0 | code >> 6);
            to += char(0x80 | (code & 63));
        } else if (code < 0x10000) {
            to += char(0xE0 | code >> 12);
            to += char(0x80 | (code >> 6 & 63));
            to += char(0x80 | (code & 63));
        } else {
            to += char(0xF0 | code >> 18);
            to += char(0x80 | (code >> 12 & 63));
            to += char(0x80 | (code >> 6 & 63));
            to += char(0x80 | (code & 63));
        }
    }

    // Copies one letter of several bytes, if it is valid UTF-8.
    void letter(std::string &to) {
        const auto first = uint8_t(text[at]);
        const size_t length = first >= 0xF0 && first < 0xF8 ? 4 : first >= 0xE0 && first < 0xF0 ? 3 : first >= 0xC2 && first < 0xE0 ? 2 : 0;
        if (!length || at + length > text.size()) refuse();
        uint32_t code = first & (0xFFu >> (length + 1));
        for (size_t i = 1; i < length; i++) {
            const auto next = uint8_t(text[at + i]);
            if ((next & 0xC0) != 0x80) refuse();
            code = code << 6 | (next & 63u);
        }
        if (code < (length == 2 ? 0x80u : length == 3 ? 0x800u : 0x10000u) || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) refuse();
        to.append(text.substr(at, length));
        at += length;
    }

    std::string string() {
        static const std::string_view escapes = "\"\\/bfnrt", meant = "\"\\/\b\f\n\r\t";
        std::string found;
        at++;
        while (true) {
            if (at >= text.size() || uint8_t(text[at]) < 0x20) refuse();
            if (text[at] == '"') break;
            if (text[at] == '\\') {
                at++;
                if (peek() == 'u') {
                    at++;
                    uint32_t code = hexadecimal();
                    if (code >= 0xD800 && code < 0xDC00) {
                        if (!word("\\u")) refuse();
                        const uint32_t low = hexadecimal();
                        if (low < 0xDC00 || low >= 0xE000) refuse();
                        code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
                    } else if (code >= 0xDC00 && code < 0xE000) {
                        refuse();
                    }
                    append(found, code);
                } else {
                    const size_t which = at < text.size() ? escapes.find(text[at]) : std::string_view::npos;
                    if (which == std::string_view::npos) refuse();
                    found += meant[which];
                    at++;
                }
            } else if (uint8_t(text[at]) < 0x80) {
                found += text[at++];
            } else {
                letter(found);
            }
        }
        at++;
        return found;
    }
};

}  // namespace swamp
