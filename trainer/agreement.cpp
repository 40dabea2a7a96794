#include "trainer/agreement.hpp"

#include "comm/error.hpp"
#include "trainer/device/compute_device.hpp"
#include "trainer/error.hpp"

#include <c10/util/Exception.h>

namespace onebatch {
namespace {

struct Failure {
  ExitCode code = ExitCode::done;
  std::string message;
};

// LibTorch's own text ends in a stack trace that nobody asked for.
std::string words_of(const std::exception& error) {
  const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  return torch_error != nullptr ? torch_error->what_without_backtrace() : error.what();
}

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
    return {ExitCode::failed, words_of(error)};
  }
}

}  // namespace

void agree(comm::Communicator& control, const std::function<void()>& work) {
  const Failure mine = attempt(work);
  const std::string said =
      mine.code == ExitCode::done ? "" : std::to_string(static_cast<int>(mine.code)) + " " + comm::host_name() + "\n" + mine.message;
  const auto all = comm::all_gather_text(control, said);
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].empty()) continue;
    const std::size_t space = all[rank].find(' ');
    const std::size_t newline = all[rank].find('\n');
    const std::string who =
        all.size() == 1 ? "" : "rank " + std::to_string(rank) + " (" + all[rank].substr(space + 1, newline - space - 1) + "): ";
    throw AgreedError(static_cast<ExitCode>(std::stoi(all[rank].substr(0, space))), who + all[rank].substr(newline + 1));
  }
}

}  // namespace onebatch
