#include "tests/fuzz/image_check.hpp"

namespace onebatch::fuzz {
namespace {

const Registered k_registered("png", check_image);

}  // namespace
}  // namespace onebatch::fuzz
