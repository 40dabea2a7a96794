#include "trainer/models/source_places.hpp"

#include <stdexcept>

namespace onebatch {
namespace {

using Kind = PickledKind;
using Values = std::vector<PickledValue>;

[[noreturn]] void fail(const std::string& what) {
  throw std::runtime_error("its places in the source " + what);
}

const PickledValue& item(const Values& values, std::size_t index, Kind kind) {
  if (index >= values.size() || values[index].kind != kind) fail("have another form than LibTorch writes");
  return values[index];
}

const Values& tuple(const Values& values, std::size_t index) {
  return *item(values, index, Kind::tuple).items;
}

const std::string& text_at(const Values& table, std::int64_t index) {
  if (index < 0 || static_cast<std::uint64_t>(index) >= table.size()) fail("name a text that is not there");
  return table[static_cast<std::size_t>(index)].text;
}

// The text's length. A source is (text or its pieces' numbers, file or its number, first line).
std::uint64_t check_source(const Values& source, const Values& table) {
  if (source.size() != 3) fail("have another form than LibTorch writes");
  item(source, 2, Kind::integer);
  if (table.empty()) {
    if (source[1].kind != Kind::none) item(source, 1, Kind::text);
    return item(source, 0, Kind::text).text.size();
  }
  text_at(table, item(source, 1, Kind::integer).number);
  std::uint64_t length = 0;
  for (const PickledValue& piece : *item(source, 0, Kind::integers).items)
    length += text_at(table, piece.number).size();
  return length;
}

// (offset in the code, (source, begin, end), ...)
void check_place(const Values& place, const Values& table) {
  item(place, 0, Kind::integer);
  const Values& range = tuple(place, 1);
  if (range.size() != 3) fail("have another form than LibTorch writes");
  const std::uint64_t length = check_source(tuple(range, 0), table);
  const std::int64_t begin = item(range, 1, Kind::integer).number;
  const std::int64_t end = item(range, 2, Kind::integer).number;
  // What has no source is from 0 to 1 of an empty text.
  if (begin < 0 || end < begin || static_cast<std::uint64_t>(begin) > length ||
      static_cast<std::uint64_t>(end) > length + 1)
    fail("lie outside of their text");
}

}  // namespace

void check_source_places(const PickledValue& places) {
  if (places.kind != Kind::tuple || places.items->empty()) fail("have another form than LibTorch writes");
  const Values& all = *places.items;
  const bool has_table = all[0].kind == Kind::text && all[0].text == "FORMAT_WITH_STRING_TABLE";
  const Values& table = has_table ? tuple(all, 1) : Values();
  for (std::size_t i = 0; i < table.size(); ++i) item(table, i, Kind::text);
  const Values& records = has_table ? tuple(all, 2) : all;
  for (std::size_t i = 0; i < records.size(); ++i) check_place(tuple(records, i), table);
}

}  // namespace onebatch
