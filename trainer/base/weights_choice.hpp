// Which of a checkpoint's weights are taken.
#pragma once

namespace onebatch {

/// automatic: the averaged ones where the checkpoint has them.
enum class WeightsChoice { automatic, raw, averaged };

}  // namespace onebatch
