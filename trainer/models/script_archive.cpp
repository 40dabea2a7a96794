#include "trainer/models/script_archive.hpp"

#include "trainer/io/pickled_tensors.hpp"

#include <map>
#include <stdexcept>
#include <string_view>

namespace onebatch {
namespace {

// Those that LibTorch reads: values, constants, and the places in the source that errors name.
bool is_pickle(const std::string& name) {
  const std::string within = name.substr(name.find('/') + 1);
  return within == "data.pkl" || within == "constants.pkl" || (within.starts_with("code/") && within.ends_with(".debug_pkl"));
}

// All records lie in one folder, which has the archive's first name.
std::string folder_of(const std::vector<ZipRecord>& records) {
  if (records.empty()) throw std::runtime_error("it is empty");
  const std::string folder = records.front().name.substr(0, records.front().name.find('/') + 1);
  for (const ZipRecord& record : records) {
    if (folder.empty() || !record.name.starts_with(folder))
      throw std::runtime_error("its record " + record.name + " lies in no folder, or another");
  }
  return folder;
}

void check_storages(const std::map<std::string, const ZipRecord*>& records, const std::string& pickle) {
  const std::string folder = pickle.substr(0, pickle.rfind('.')) + "/";
  for (const PickledStorage& storage : read_pickled_storages(records.at(pickle)->content)) {
    const auto found = records.find(folder + storage.key);
    if (storage.bytes == 0) continue;
    if (found == records.end()) throw std::runtime_error("its record " + folder + storage.key + " is missing");
    if (found->second->bytes < storage.bytes)
      throw std::runtime_error("its record " + found->first + " holds " + std::to_string(found->second->bytes) + " bytes of a tensor's " +
                               std::to_string(storage.bytes));
  }
}

}  // namespace

std::vector<ZipRecord> check_script_archive(const std::string& file) {
  auto records = read_zip(file, is_pickle);
  const std::string folder = folder_of(records);
  std::map<std::string, const ZipRecord*> by_name;
  for (const ZipRecord& record : records) by_name[record.name] = &record;
  if (by_name.contains(folder + "model.json")) throw std::runtime_error("it is of PyTorch 1.0's format");
  // Files with newer operators have their version in another place.
  const auto has = [&](const char* name) { return by_name.contains(folder + name); };
  for (const char* needed : {"data.pkl", "constants.pkl", "version"}) {
    if (!has(needed) && !(std::string_view(needed) == "version" && has(".data/version")))
      throw std::runtime_error("its record " + folder + needed + " is missing");
  }
  for (const ZipRecord& record : records) {
    if (is_pickle(record.name)) check_storages(by_name, record.name);
  }
  for (ZipRecord& record : records) record.name.erase(0, folder.size());
  return records;
}

}  // namespace onebatch
