#include "trainer/checkpoint/export_model.hpp"

#include "trainer/base/error.hpp"
#include "trainer/checkpoint/averaged_weights.hpp"
#include "trainer/checkpoint/checkpoint_contents.hpp"
#include "trainer/checkpoint/run_state.hpp"
#include "trainer/device/compute_device.hpp"
#include "trainer/io/durable_file.hpp"
#include "trainer/io/tensor_file.hpp"
#include "trainer/io/zip_file.hpp"
#include "trainer/io/zip_records.hpp"
#include "trainer/models/exported_state.hpp"
#include "trainer/settings/identity.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <map>

namespace onebatch {
namespace {

namespace fs = std::filesystem;

Checksum copy_synced(const fs::path& source, const fs::path& target) {
  constexpr std::size_t k_block_bytes = std::size_t{1} << 20;
  std::ifstream in(source, std::ios::binary);
  if (!in) throw UserError("cannot read " + source.string());
  DurableFile out(target);
  std::string block(k_block_bytes, '\0');
  while (in) {
    in.read(block.data(), static_cast<std::streamsize>(block.size()));
    out.write(std::as_bytes(std::span(block).first(static_cast<std::size_t>(in.gcount()))));
  }
  if (in.bad()) throw std::runtime_error("cannot read " + source.string() + " to its end");
  return out.commit();
}

void check_on_disk(const fs::path& file, const Checksum& written) {
  if (checksum_of(file, ReadFrom::disk) != written)
    throw std::runtime_error(file.string() + " is not what was written: look at the disk and its file system");
}

struct TrainedProgram {
  std::string digest;
  std::string folder;  // of the archive
  std::vector<ExportedTensor> places;
  std::vector<NamedTensor> weights;  // without gaps between those of a record
};

TrainedProgram read_program(const std::string& file) {
  try {
    ExportedArchive archive = read_exported_archive(file);
    const ExportedState state(archive, file);
    return {archive.digest, archive.folder, std::move(archive.tensors), state.state_dict()};
  } catch (const UserError&) {
    throw;
  } catch (const std::exception& error) {
    if (is_out_of_memory(error)) throw;
    throw UserError(file + " cannot be read as a program of torch.export: " + error.what());
  }
}

void refuse_another_program(const fs::path& checkpoint, const std::string& program, const std::string& digest) {
  const fs::path file = checkpoint / k_state_file;
  const auto identity = parse_run_state(read_text(file), file.string()).identity;
  const auto trained = identity.find(k_program_digest);
  if (trained != identity.end() && trained->second != digest)
    throw UserError(program + " is not the program that was trained: it computes something else with these weights. " +
                    "Give it the file that the run had, or take the weights alone: --to NAME.safetensors");
}

// Into the program's own tensors. Returns how many were of another type.
std::int64_t take_weights(const fs::path& checkpoint, const std::string& program,
                          const std::vector<NamedTensor>& weights, HasWeights taken) {
  const fs::path file = checkpoint / k_model_file;
  try {
    load_tensors(file, weights, Extra::refused);
    if (taken == HasWeights::averaged) load_averaged_weights(checkpoint, weights);
  } catch (const UserError& error) {
    throw UserError(program + " is not the program that was trained: " + error.what());
  }
  std::map<std::string, std::string> saved;
  for (const SafetensorsEntry& entry : read_safetensors_header(file).entries) saved[entry.name] = entry.dtype;
  return std::ranges::count_if(weights, [&](const NamedTensor& one) {
    const char* own = dtype_of_type(one.tensor.scalar_type());
    return own == nullptr || saved[one.name] != own;
  });
}

HasWeights weights_of(const fs::path& checkpoint, WeightsChoice choice) {
  return takes_averaged_weights(checkpoint, choice) ? HasWeights::averaged : HasWeights::raw;
}

// A record is all of the memory that its tensors share.
RecordBytes records_of(const TrainedProgram& trained) {
  std::map<std::string, at::Tensor> by_name;
  for (const NamedTensor& one : trained.weights) by_name.emplace(one.name, one.tensor);
  RecordBytes records;
  for (const ExportedTensor& place : trained.places) {
    const auto found = by_name.find(place.name);
    if (found == by_name.end()) continue;
    const c10::Storage& memory = found->second.storage();
    records[trained.folder + place.record] = {static_cast<const std::byte*>(memory.data()), memory.nbytes()};
  }
  return records;
}

// What a zip library finds there is what was to be there.
void check_records(const fs::path& file, const RecordBytes& records) {
  for (const ZipRecord& record : read_zip(file.string(), [](const ZipRecord&) { return ZipContent::read; })) {
    const auto replaced = records.find(record.name);
    if (replaced != records.end() && record.checksum != checksum_of(replaced->second))
      throw std::runtime_error("the record " + record.name + " was not written where it is read");
  }
}

}  // namespace

HasWeights export_weights(const fs::path& checkpoint, const fs::path& target, WeightsChoice choice) {
  const HasWeights weights = weights_of(checkpoint, choice);
  const fs::path source = checkpoint / k_model_file;
  const std::string said = checksum_in_manifest(checkpoint, k_model_file);
  write_atomically(target, [&](const fs::path& partial) {
    const bool averaged = weights == HasWeights::averaged;
    const Checksum written = averaged ? write_averaged_model(checkpoint, partial) : copy_synced(source, partial);
    if (!averaged && to_text(written) != said)
      throw UserError(source.string() + " was altered: its checksum is not the manifest's");
    check_on_disk(partial, written);
    return written;
  });
  return weights;
}

ExportedWeights export_program(const fs::path& checkpoint, const std::string& program, const fs::path& target,
                               WeightsChoice choice) {
  const TrainedProgram trained = read_program(program);
  ExportedWeights done;
  done.weights = weights_of(checkpoint, choice);
  done.tensors = std::ssize(trained.weights);
  done.converted = take_weights(checkpoint, program, trained.weights, done.weights);
  refuse_another_program(checkpoint, program, trained.digest);  // after tensors that do not fit, which say more
  const RecordBytes records = records_of(trained);
  write_atomically(target, [&](const fs::path& partial) {
    const Checksum written = copy_with_records(program, partial, records);
    check_on_disk(partial, written);
    check_records(partial, records);
    return written;
  });
  return done;
}

}  // namespace onebatch
