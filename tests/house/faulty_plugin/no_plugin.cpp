// A shared object that says when it is loaded.
#include <cstdio>

[[gnu::constructor]] static void say() {
  std::fputs("the file was loaded\n", stderr);
}
