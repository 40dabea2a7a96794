#include "launch/completion.hpp"

#include "trainer/run/built_in_kinds.hpp"
#include "trainer/settings/keys.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <sstream>

namespace onebatch::launch {
namespace {

using Commands = std::vector<DescribedCommand>;

// CLI11 keeps what IsMember allows in the type's name alone: "TEXT:{bash,zsh,fish}".
std::vector<std::string> values_of(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const std::size_t begin = type.find('{');
  const std::size_t end = type.find('}', begin);
  std::vector<std::string> values;
  if (begin == std::string::npos || end == std::string::npos) return values;
  std::istringstream words(type.substr(begin + 1, end - begin - 1));
  for (std::string word; std::getline(words, word, ',');) values.push_back(word);
  return values;
}

DescribedOption describe(const CLI::Option& option) {
  DescribedOption described;
  for (const std::string& name : option.get_snames()) described.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) described.names.push_back("--" + name);
  described.is_argument = described.names.empty();
  if (described.is_argument) described.names.push_back(option.get_name(true));
  described.description = option.get_description();
  described.values = values_of(option);
  described.standard = option.get_default_str();
  described.takes_value = option.get_items_expected_max() > 0;
  described.is_needed = option.get_required();
  return described;
}

std::string keys_text() {
  register_built_in_kinds();
  std::string text;
  for (const Key& key : configuration_keys()) text += (text.empty() ? "" : " ") + key.path;
  return text;
}

// A word for a shell between single quotes.
std::string plain(std::string text) {
  std::erase_if(text, [](char letter) { return letter == '\'' || letter == '`'; });
  return text;
}

std::string names_where(const DescribedCommand& command, const std::function<bool(const DescribedOption&)>& wanted) {
  std::vector<std::string> names;
  for (const DescribedOption& option : command.options) {
    if (wanted(option)) names.insert(names.end(), option.names.begin(), option.names.end());
  }
  return fmt::format("{}", fmt::join(names, " "));
}

bool is_option(const DescribedOption& option) {
  return !option.is_argument;
}

std::string all_names(const Commands& commands) {
  std::vector<std::string> names;
  for (const DescribedCommand& command : commands) names.push_back(command.name);
  return fmt::format("{}", fmt::join(names, " "));
}

std::string launching(const Commands& commands) {
  std::vector<std::string> names;
  for (const DescribedCommand& command : commands) {
    if (command.runs_another) names.push_back(command.name);
  }
  return fmt::format("{}", fmt::join(names, "|"));
}

// --- bash

constexpr const char* k_bash = R"(# Completion of onebatch for bash; made by: onebatch completion bash
_onebatch() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} command= options= values= word
  local commands="{commands}"
  for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
    [[ " $commands " == *" $word "* ]] || continue
    command=$word
    case $word in {launching}) ;; *) break ;; esac
  done
  COMPREPLY=()
  case $command in
{cases}  esac
  case $command,$before in
{valued}  esac
  if [[ $before == --set ]]; then
    compopt -o nospace
    COMPREPLY=($(compgen -S = -W "{keys}" -- "$current"))
  elif [[ $before == = || $current == = ]]; then
    COMPREPLY=()
  elif [[ $current == -* ]]; then
    COMPREPLY=($(compgen -W "$options" -- "$current"))
  elif [[ -n $values ]]; then
    COMPREPLY=($(compgen -W "$values" -- "$current"))
  elif [[ -z $command ]]; then
    COMPREPLY=($(compgen -W "$commands" -- "$current"))
  else
    compopt -o filenames 2>/dev/null
    COMPREPLY=($(compgen -f -- "$current"))
    case $command in {launching}) COMPREPLY+=($(compgen -W "$commands" -- "$current")) ;; esac
  fi
}}
complete -F _onebatch onebatch
)";

std::string bash_script(const Commands& commands) {
  std::string cases = "    \"\") options=\"--help --version\" ;;\n";
  std::string valued;
  for (const DescribedCommand& command : commands) {
    cases += fmt::format("    {}) options=\"{}\" ;;\n", command.name, names_where(command, is_option));
    for (const DescribedOption& option : command.options) {
      if (option.values.empty()) continue;
      const std::string before = option.is_argument ? command.name : option.names.back();
      valued += fmt::format("    {},{}) values=\"{}\" ;;\n", command.name, before, fmt::join(option.values, " "));
    }
  }
  return fmt::format(k_bash, fmt::arg("commands", all_names(commands)), fmt::arg("launching", launching(commands)),
                     fmt::arg("cases", cases), fmt::arg("valued", valued), fmt::arg("keys", keys_text()));
}

// --- zsh

constexpr const char* k_zsh = R"(#compdef onebatch
# Completion of onebatch for zsh; made by: onebatch completion zsh
_onebatch_commands() {{
  local -a commands=(
{commands}  )
  _describe command commands
}}
_onebatch_keys() {{
  compadd -S = -- {keys}
}}
_onebatch() {{
  local curcontext="$curcontext" state line
  typeset -A opt_args
  _arguments -C '--help[print help]' '--version[print the version]' '1:command:_onebatch_commands' '*::argument:->rest'
  [[ $state == rest ]] || return
  while [[ $words[1] == ({launching}) ]] && (( ${{words[(I)({others})]}} > 1 )); do
    local at=${{words[(i)({others})]}}
    shift $((at - 1)) words
    (( CURRENT -= at - 1 ))
  done
  case $words[1] in
{cases}  esac
}}
if [[ $funcstack[1] == _onebatch ]]; then _onebatch "$@"; else compdef _onebatch onebatch; fi
)";

// Brackets and colons end a description there.
std::string zsh_text(const std::string& text) {
  std::string escaped;
  for (const char letter : plain(text)) {
    if (letter == '[' || letter == ']' || letter == ':' || letter == '\\') escaped += '\\';
    escaped += letter;
  }
  return escaped;
}

std::string zsh_value(const DescribedOption& option) {
  if (!option.values.empty()) return fmt::format(":value:({})", fmt::join(option.values, " "));
  if (option.names.back() == "--set") return ":key:_onebatch_keys";
  return ":value:_files";
}

std::string zsh_script(const Commands& commands) {
  std::string listed;
  std::string cases;
  std::vector<std::string> others;
  for (const DescribedCommand& command : commands) {
    listed += fmt::format("    '{}:{}'\n", command.name, zsh_text(command.description));
    if (!command.runs_another) others.push_back(command.name);
    std::string arguments;
    int place = 0;
    for (const DescribedOption& option : command.options) {
      if (option.is_argument) {
        arguments +=
            fmt::format(" '{}:{}{}'", ++place, option.names.front(),
                        option.values.empty() ? ":_files" : fmt::format(":({})", fmt::join(option.values, " ")));
        continue;
      }
      for (const std::string& name : option.names)
        arguments += fmt::format(" '*{}[{}]{}'", name, zsh_text(option.description),
                                 option.takes_value ? zsh_value(option) : "");
    }
    if (command.runs_another) arguments += " '*:command:_onebatch_commands'";
    cases += fmt::format("    {}) _arguments{} ;;\n", command.name, arguments);
  }
  return fmt::format(k_zsh, fmt::arg("commands", listed), fmt::arg("keys", keys_text()),
                     fmt::arg("launching", launching(commands)),
                     fmt::arg("others", fmt::format("{}", fmt::join(others, "|"))), fmt::arg("cases", cases));
}

// --- fish

std::string fish_script(const Commands& commands) {
  std::string text =
      "# Completion of onebatch for fish; made by: onebatch completion fish\n"
      "complete -c onebatch -n __fish_use_subcommand -l help -d 'print help'\n"
      "complete -c onebatch -n __fish_use_subcommand -l version -d 'print the version'\n";
  const std::string keys = keys_text();
  for (const DescribedCommand& command : commands) {
    const std::string after = fmt::format("'__fish_seen_subcommand_from {}'", command.name);
    text += fmt::format(
        "complete -c onebatch -f -n '__fish_use_subcommand; or __fish_seen_subcommand_from {}' -a {} -d '{}'\n",
        launching(commands), command.name, plain(command.description));
    for (const DescribedOption& option : command.options) {
      std::string line = fmt::format("complete -c onebatch -n {}", after);
      if (!option.is_argument) {
        for (const std::string& name : option.names)
          line +=
              name.starts_with("--") ? fmt::format(" -l {}", name.substr(2)) : fmt::format(" -s {}", name.substr(1));
        if (option.takes_value) line += " -r";
      }
      if (!option.values.empty()) line += fmt::format(" -f -a '{}'", fmt::join(option.values, " "));
      if (option.names.back() == "--set")
        line += fmt::format(" -f -a '(string split \" \" -- \"{}\" | string replace -r \"\\$\" =)'", keys);
      if (option.is_argument && option.values.empty()) continue;  // a file, which fish offers by itself
      text += fmt::format("{} -d '{}'\n", line, plain(option.description));
    }
  }
  return text;
}

}  // namespace

std::vector<DescribedCommand> describe_commands(const CLI::App& app) {
  Commands commands;
  for (const CLI::App* one : app.get_subcommands([](const CLI::App*) { return true; })) {
    DescribedCommand command{one->get_name(), one->get_description(), {}, one->get_prefix_command()};
    for (const CLI::Option* option : one->get_options()) command.options.push_back(describe(*option));
    commands.push_back(std::move(command));
  }
  return commands;
}

std::string completion_script(const CLI::App& app, const std::string& shell) {
  const Commands commands = describe_commands(app);
  if (shell == "bash") return bash_script(commands);
  return shell == "zsh" ? zsh_script(commands) : fish_script(commands);
}

}  // namespace onebatch::launch
