// Starts the ranks of a command: the mpirun line that is right here, shown and run, and Ctrl-C that saves.
#pragma once

#include "launch/command_line.hpp"

#include <string>
#include <vector>

namespace onebatch::launch {

/// What a launch is made of; everything that it looks up itself is here, so that it can be tried without it.
struct LaunchPlan {
  int ranks = 1;
  std::string hosts = {};  // as mpirun takes them: "a:2,b:4"; empty: this machine
  bool as_root = false;
  bool alone_speaks = false;  // the program: mpirun says nothing of ranks that fail, nor of too few cores
  int slots = 1;  // how many ranks mpirun takes as they are: this machine's cores, or the tasks of a Slurm job
  std::vector<std::string> words = {};   // of the program, which is the first of them
  std::vector<std::string> passed = {};  // names of variables that ranks on other hosts are to have
};

/// The words of the command line: of mpirun, or of the program itself where it is one rank here.
std::vector<std::string> launch_line(const LaunchPlan& plan);

/// `hosts` as a user writes them, "a,b" or "a:2,b", and how many ranks that makes, where each has one unless it says
/// otherwise. Throws UserError.
struct Hosts {
  std::string with_slots;
  int ranks = 0;
};
Hosts hosts_of(const std::string& hosts);

/// Runs the command on ranks; returns its exit code. SIGINT, SIGTERM and SIGHUP make a training run save and end with
/// 75, a second one of them ends it at once. Throws UserError where no mpirun can be started.
int launch(const Arguments& arguments);

}  // namespace onebatch::launch
