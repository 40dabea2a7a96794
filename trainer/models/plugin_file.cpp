#include "trainer/models/plugin_file.hpp"

#include "comm/visible_text.hpp"
#include "trainer/base/error.hpp"

#include <elf.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace onebatch {
namespace {

constexpr std::string_view k_elf =
    "\x7f"
    "ELF";

template <std::size_t N>
bool is_ended(const std::array<char, N>& text) {
  return std::ranges::find(text, '\0') != text.end();
}

template <std::size_t N>
std::string text_in(const std::array<char, N>& text) {
  return comm::visible_text(std::string_view(text.data()));
}

bool is_whole(const PluginStamp& stamp) {
  return is_ended(stamp.begin) && is_ended(stamp.interface) && is_ended(stamp.onebatch) && is_ended(stamp.libtorch) &&
         is_ended(stamp.standard_library) && is_ended(stamp.end) &&
         std::string_view(stamp.end.data()) == PluginStampMarks::k_end;
}

template <typename Record>
std::optional<Record> record_at(std::string_view bytes, std::uint64_t place) {
  Record record{};
  if (place > bytes.size() || bytes.size() - place < sizeof(record)) return std::nullopt;
  std::memcpy(&record, bytes.data() + place, sizeof(record));
  return record;
}

// The loader maps what the headers name: where the file ends before that, the process would die of it.
bool is_cut(std::string_view bytes) {
  const auto header = record_at<Elf64_Ehdr>(bytes, 0);
  if (!header || header->e_ident[EI_CLASS] != ELFCLASS64) return false;
  for (std::uint64_t i = 0; i < header->e_phnum; ++i) {
    const auto segment = record_at<Elf64_Phdr>(bytes, header->e_phoff + i * header->e_phentsize);
    if (!segment || segment->p_offset > bytes.size() || segment->p_filesz > bytes.size() - segment->p_offset)
      return true;
  }
  return false;
}

std::string contents_of(const std::string& file, const std::string& named) {
  std::ifstream in(file, std::ios::binary);
  std::ostringstream bytes;
  bytes << in.rdbuf();
  if (!in) throw UserError(named + " cannot be read: see who may read it");
  return std::move(bytes).str();
}

}  // namespace

std::optional<PluginStamp> find_plugin_stamp(std::string_view bytes) {
  for (std::size_t at = bytes.find(PluginStampMarks::k_begin); at != std::string_view::npos;
       at = bytes.find(PluginStampMarks::k_begin, at + 1)) {
    PluginStamp stamp{};
    if (bytes.size() - at < sizeof(stamp)) return std::nullopt;
    std::memcpy(&stamp, bytes.data() + at, sizeof(stamp));
    if (is_whole(stamp)) return stamp;
  }
  return std::nullopt;
}

std::string why_not_this_program(const PluginStamp& plugin, const PluginStamp& program) {
  if (plugin.onebatch != program.onebatch || plugin.interface != program.interface)
    return fmt::format(
        "was built for onebatch {} (plugin interface {}), and this is onebatch {} ({}): build it anew against the "
        "package of this version",
        text_in(plugin.onebatch), text_in(plugin.interface), text_in(program.onebatch), text_in(program.interface));
  if (plugin.libtorch != program.libtorch)
    return fmt::format(
        "was built with LibTorch {}, and this onebatch with {}: build it anew with -DLIBTORCH_ROOT=… of that one",
        text_in(plugin.libtorch), text_in(program.libtorch));
  if (plugin.standard_library != program.standard_library)
    return fmt::format(
        "was built with {}, and this onebatch with {}: build it anew with the compiler and the flags that agree",
        text_in(plugin.standard_library), text_in(program.standard_library));
  return "";
}

void check_plugin_file(const std::string& file, const std::string& named, const PluginStamp& program) {
  if (!std::filesystem::is_regular_file(file))
    throw UserError(named + " is no file: write the path of a shared object that was built against this onebatch");
  const std::string bytes = contents_of(file, named);
  if (!bytes.starts_with(k_elf)) return;
  if (is_cut(bytes)) throw UserError(named + " ends before its headers say: copy or build it anew");
  const std::optional<PluginStamp> stamp = find_plugin_stamp(bytes);
  if (!stamp)
    throw UserError(named +
                    " is no plugin, and was not loaded: #include <onebatch/plugin.hpp> and write "
                    "ONEBATCH_PLUGIN(your_factory) in one of its files");
  if (const std::string why = why_not_this_program(*stamp, program); !why.empty()) throw UserError(named + " " + why);
}

}  // namespace onebatch
