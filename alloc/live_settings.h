// `fragscope ctl set`: the recorder of this process holds what is asked for; each allocation looks.
//
// Threads: any.
#pragma once

namespace fragscope::alloc {

void take_live_settings();

}  // namespace fragscope::alloc
