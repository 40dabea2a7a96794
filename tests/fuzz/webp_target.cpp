#include "tests/fuzz/image_check.hpp"

namespace onebatch::fuzz {
namespace {

const Registered k_registered("webp", check_image);

}  // namespace
}  // namespace onebatch::fuzz
