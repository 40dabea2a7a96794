#include "trainer/device/agreement.hpp"

#include "comm/error.hpp"
#include "trainer/device/compute_device.hpp"
#include "trainer/device/deterministic.hpp"
#include "trainer/device/no_room.hpp"
#include "trainer/device/out_of_memory.hpp"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>

namespace onebatch {
namespace {

struct Failure {
  ExitCode code = ExitCode::done;
  std::string message;
};

Failure attempt(const std::function<void()>& work) {
  try {
    work();
    return {};
  } catch (const AgreedError& error) {
    return {error.code(), error.what()};
  } catch (const UserError& error) {
    return {ExitCode::user_error, error.what()};
  } catch (const comm::LaunchError& error) {
    return {ExitCode::user_error, error.what()};
  } catch (const DoesNotFitError& error) {
    return {ExitCode::does_not_fit, error.what()};
  } catch (const std::exception& error) {
    if (is_out_of_memory(error) || is_out_of_host_memory(error)) return {ExitCode::does_not_fit, words_of(error)};
    if (const std::string operation = operation_without_deterministic_form(error); !operation.empty())
      return {ExitCode::user_error, refusal_of(operation)};
    return {ExitCode::failed, words_of(error)};
  }
}

std::vector<AgreedItem> read_items(const std::string& text) {
  std::vector<AgreedItem> items;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t middle = text.find('\x1f', begin);
    const std::size_t end = text.find('\x1e', middle);
    items.push_back({text.substr(begin, middle - begin), text.substr(middle + 1, end - middle - 1)});
    begin = end + 1;
  }
  return items;
}

std::string first_difference(const std::vector<AgreedItem>& first, const std::vector<AgreedItem>& other,
                             std::size_t rank) {
  const std::string who = fmt::format("rank 0 and rank {} differ in ", rank);
  for (std::size_t i = 0; i < std::max(first.size(), other.size()); ++i) {
    if (i >= first.size())
      return fmt::format("{}{}: only rank {} has it ({})", who, other[i].name, rank, other[i].value);
    if (i >= other.size() || first[i].name != other[i].name)
      return fmt::format("{}{}: {} on rank 0; rank {} has {}", who, first[i].name, first[i].value, rank,
                         i < other.size() ? other[i].name + " in its place" : "none");
    if (first[i].value != other[i].value)
      return fmt::format("{}{}: {} on rank 0, {} on rank {}", who, first[i].name, first[i].value, other[i].value, rank);
  }
  return who + "nothing";
}

}  // namespace

std::string words_of(const std::exception& error) {
  const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  const std::string words = torch_error != nullptr ? torch_error->what_without_backtrace() : error.what();
  if (is_out_of_memory(error)) return words + ": " + k_free_memory;
  return is_out_of_host_memory(error) ? "the host, not its GPU, has no memory left (" + words + ")" : words;
}

ExitCode exit_code_of(const std::exception& error) {
  if (const auto* agreed = dynamic_cast<const AgreedError*>(&error)) return agreed->code();
  if (dynamic_cast<const UserError*>(&error) != nullptr || dynamic_cast<const comm::LaunchError*>(&error) != nullptr)
    return ExitCode::user_error;
  if (dynamic_cast<const DoesNotFitError*>(&error) != nullptr) return ExitCode::does_not_fit;
  if (dynamic_cast<const comm::CommError*>(&error) != nullptr) return ExitCode::peer_failed;
  if (is_out_of_memory(error) || is_out_of_host_memory(error)) return ExitCode::does_not_fit;
  return ExitCode::failed;
}

void agree(comm::Communicator& control, const std::function<void()>& work) {
  const Failure mine = attempt(work);
  const std::string said = mine.code == ExitCode::done
                               ? ""
                               : fmt::format("{} {}\n{}", static_cast<int>(mine.code), comm::host_name(), mine.message);
  const auto all = comm::all_gather_text(control, said);
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].empty()) continue;
    const std::size_t space = all[rank].find(' ');
    const std::size_t newline = all[rank].find('\n');
    const std::string who =
        all.size() == 1 ? "" : fmt::format("rank {} ({}): ", rank, all[rank].substr(space + 1, newline - space - 1));
    auto code = static_cast<ExitCode>(std::stoi(all[rank].substr(0, space)));
    // For the others it is another rank that failed, unless it is something that the user has to mend.
    if (code == ExitCode::failed && mine.code == ExitCode::done) code = ExitCode::peer_failed;
    throw AgreedError(code, who + all[rank].substr(newline + 1));
  }
}

void agree_on_rank_0(comm::Communicator& control, const std::function<void()>& work) {
  agree(control, [&] {
    if (control.rank() == 0) work();
  });
}

void check_same(comm::Communicator& control, const std::vector<AgreedItem>& items) {
  std::string mine;
  for (const AgreedItem& item : items) mine += item.name + "\x1f" + item.value + "\x1e";
  const auto all = comm::all_gather_text(control, mine);
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] != all[0])
      throw AgreedError(ExitCode::user_error, first_difference(read_items(all[0]), read_items(all[rank]), rank));
  }
}

}  // namespace onebatch
