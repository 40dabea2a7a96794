// A key of the configuration, described once: what it takes, what it means, and what another value of it changes.
// Reading, showing, comparing, the documents and the identities of checkpoints and of the probe's answers all come from
// these descriptions.
#pragma once

#include "trainer/base/configuration.hpp"
#include "trainer/settings/value.hpp"

#include <functional>
#include <string>
#include <vector>

namespace onebatch {

/// What is wrong with a value, in words that say what to write instead; empty: nothing.
using Complaint = std::string;

/// What another value of a key changes; joined by |.
enum class Changes : unsigned {
  nothing = 0,  // of the result: where it is kept, what is said
  result = 1,   // what is trained, be it in the last bit: a run that goes on says that it differs
  probe = 2,    // what the probe finds: its answer is not that of another value
  run = 4,      // whose run it is: a checkpoint of another value is not gone on from
};

constexpr Changes operator|(Changes a, Changes b) {
  return static_cast<Changes>(static_cast<unsigned>(a) | static_cast<unsigned>(b));
}

constexpr bool includes(Changes all, Changes one) {
  return (static_cast<unsigned>(all) & static_cast<unsigned>(one)) != 0;
}

/// Of a key that one kind brings, where another is chosen: giving it a value is a mistake, or changes nothing.
enum class Elsewhere { refused, ignored };

/// What a section's key is called and means.
struct KeyText {
  std::string name;  // "lr"
  Changes changes = Changes::nothing;
  std::string text;            // for docs/configuration.md, in Markdown
  std::string otherwise = {};  // what stands there for the default, where that says more: "needed"
  Elsewhere elsewhere = Elsewhere::refused;
};

/// A key of one section of the configuration.
template <typename Section>
struct KeyOf {
  KeyText about;
  std::string values;  // "a whole number from 1"
  std::function<Complaint(const ConfigValue&, Section&)> read;
  std::function<std::string(const Section&)> show;  // as TOML; empty: not set
  /// What of it the probe's answer depends on; none: all.
  std::function<std::string(const Section&)> measured = {};
};

/// A key of the whole configuration.
struct Key {
  std::string path;  // "optimizer.lr"
  KeyText about;
  std::string values;
  std::function<Complaint(const ConfigValue&, Configuration&)> read;
  std::function<std::string(const Configuration&)> show;
  std::function<std::string(const Configuration&)> measured;
  std::vector<std::string> kinds = {};  // of its section, that it belongs to; empty: to all
  /// Whether the kind that is chosen is one of them; none: it is.
  std::function<bool(const Configuration&)> in_use = {};
};

}  // namespace onebatch
