// A trace of ten events whose figures are worked out here by hand, not by the program.
#include "metrics/process_metrics.h"
#include "replay/event_stream.h"
#include "report/build_report.h"
#include "report/json_report.h"
#include "report/text_report.h"
#include "tests/support/catch.h"
#include "tests/support/golden.h"
#include "trace/text_events.h"

using namespace fragscope;
using metrics::KnownLevel;

namespace {

report::ReportData report_of(const std::string& golden) {
  auto reader = trace::parse_text_trace(test::read_golden(golden), golden);
  REQUIRE(reader.ok());
  reader->load_tables();
  replay::TraceStream events(*reader);
  symbolize::Symbolizer symbols(reader->tables());
  report::ReportData data;
  data.run.path = "ten_lines.trace";
  data.processes.push_back(report::build_process(
      metrics::measure_process(events, replay::facts_of(reader->process(), &reader->tables())),
      &symbols));
  return data;
}

}  // namespace

TEST_CASE("the figures of a ten-line trace") {
  const report::ReportData data = report_of("report/ten_lines.trace");
  REQUIRE(data.processes.size() == 1);
  const report::ProcessData& process = data.processes[0];
  CHECK(process.pid == 100);
  CHECK(process.exit.kind == "exited");
  CHECK(process.exit.code == 3);
  CHECK(process.events == 10);
  CHECK(process.failed_calls == 1);  // event 10
  CHECK(process.anomalies == 0);
  CHECK(process.block_source == "adaptor");
  CHECK(process.coverage.hooked == 12);
  CHECK(process.coverage.unhooked.at("cuFoo") == 2);
  CHECK(process.pinned_driver == KnownLevel{4096, 4096});
  CHECK(process.pinned_torch_host == KnownLevel{});

  REQUIRE(process.devices.size() == 1);
  const report::DeviceData& device = process.devices[0];
  CHECK(device.index == 0);
  CHECK(device.name == "Test card");
  CHECK(device.simulated == true);
  CHECK(device.total_bytes == 1073741824);
  // Two segments, 2 MiB + 20 MiB, never given back; the refused 2 GiB do not count.
  CHECK(device.driver_bytes == KnownLevel{23068672, 23068672});
  CHECK(device.reserved_bytes == KnownLevel{23068672, 23068672});
  CHECK(device.segments == KnownLevel{2, 2});
  // 512 + 9437184 after event 6; 9437184 after event 8.
  CHECK(device.allocated_bytes == KnownLevel{9437696, 9437184});
  CHECK(device.active_bytes == KnownLevel{9437696, 9437184});
  CHECK(device.requested_bytes == KnownLevel{9437100, 9437000});
  // After event 6: 2 MiB − 512 and 20 MiB − 9437184; after event 9 the small segment is empty.
  CHECK(device.inactive_split_bytes == KnownLevel{2096640 + 11534336, 11534336});
  REQUIRE(device.ooms);
  CHECK(device.ooms->empty());
}

TEST_CASE("what stands out at the peak and at the end of a ten-line trace") {
  const report::ReportData data = report_of("report/ten_lines.trace");
  const auto& moments = data.processes[0].devices[0].moments;
  REQUIRE(moments.size() == 2);
  const report::MomentData& peak = moments[0];
  CHECK(peak.name == "peak");
  CHECK(peak.seq == 6);
  CHECK(peak.time_ns == 1050);
  CHECK(peak.segment_bytes == 23068672);
  CHECK(peak.active_bytes == 9437696);
  CHECK(peak.stuck_bytes == 13630976);
  CHECK(peak.idle_bytes == 0);
  REQUIRE(peak.gaps.size() == 2);
  CHECK(peak.gaps[0].address == 0x200000200000 + 9437184);
  CHECK(peak.gaps[0].size == 11534336);
  REQUIRE(peak.gaps[0].before);
  CHECK(peak.gaps[0].before->address == 0x200000200000);
  CHECK_FALSE(peak.gaps[0].after);
  CHECK(peak.gaps[1].size == 2096640);
  REQUIRE(peak.pins.size() == 2);
  CHECK(peak.pins[0].inactive_bytes == 11534336);
  CHECK(peak.pins[1].active_bytes == 512);
  REQUIRE(peak.pins[1].blocks.size() == 1);
  CHECK(peak.pins[1].blocks[0].requested == 100);
  REQUIRE(peak.top_stacks.size() == 1);
  CHECK(peak.top_stacks[0].bytes == 9437696);
  CHECK(peak.top_stacks[0].blocks == 2);
  CHECK(peak.top_stacks[0].stack == std::vector<std::string>{"demo+0x1001", "demo+0x2001"});

  const report::MomentData& end = moments[1];
  CHECK(end.name == "end");
  CHECK_FALSE(end.seq);
  CHECK(end.stuck_bytes == 11534336);
  CHECK(end.idle_bytes == 2097152);
  CHECK(end.pins.size() == 1);
}

TEST_CASE("the ten-line trace as text and as JSON") {
  const report::ReportData data = report_of("report/ten_lines.trace");
  test::check_golden("report/ten_lines.txt", report::render_text(data));
  test::check_golden("report/ten_lines.json", report::render_json(data));
}
