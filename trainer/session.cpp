#include "trainer/session.hpp"
