#include "comm/error.hpp"
