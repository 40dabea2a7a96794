#include "tests/fuzz/image_check.hpp"

namespace onebatch::fuzz {
namespace {

const Registered k_registered("jpeg", check_image);

}  // namespace
}  // namespace onebatch::fuzz
