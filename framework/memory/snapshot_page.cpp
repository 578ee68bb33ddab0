#include "framework/memory/memory_snapshot.h"

namespace capstan {
namespace {

constexpr const char* kHead = R"(<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>Capstan memory</title>
<style>
body { font: 14px sans-serif; margin: 1.5em; color: #222; }
table { border-collapse: collapse; margin-bottom: 1em; }
th, td { padding: 2px 10px; text-align: right; border-bottom: 1px solid #ddd; }
th:first-child, td:first-child { text-align: left; }
.segment { display: flex; height: 18px; margin: 3px 0; background: #eee; }
.segment div { min-width: 1px; box-sizing: border-box; border-right: 1px solid #fff; }
.in_use { background: #3b76b5; }
.awaiting_free { background: #e0a030; }
.free { background: #dde3ea; }
.unmapped { background: #fff; }
.key span { display: inline-block; width: 12px; height: 12px; margin: 0 4px 0 14px; }
#about { position: sticky; top: 0; background: #fff; padding: 6px 0; min-height: 1.3em; }
</style>
</head>
<body>
<h1>Memory of <span id="device"></span></h1>
<p id="total"></p>
<table id="pools"></table>
<p class="key"><span class="in_use"></span>in use<span class="awaiting_free"></span>freed, used by
other streams<span class="free"></span>free<span class="unmapped"></span>without memory</p>
<p id="about">Point at a block.</p>
<div id="segments"></div>
<h2>History</h2>
<table id="history"></table>
<script id="snapshot" type="application/json">)";

constexpr const char* kTail = R"(</script>
<script>
'use strict';
const snapshot = JSON.parse(document.getElementById('snapshot').textContent);
const byId = (id) => document.getElementById(id);
const size = (bytes) => {
  const units = ['B', 'KiB', 'MiB', 'GiB'];
  let unit = 0;
  while (bytes >= 1024 && unit < 3) { bytes /= 1024; unit++; }
  return bytes.toFixed(unit ? 1 : 0) + ' ' + units[unit];
};
const place = (x) => [x.operation, x.module && 'in ' + x.module, x.file && x.file + ':' + x.line]
    .filter(Boolean).join(', ');
const row = (table, tag, cells) => {
  const line = table.insertRow();
  for (const text of cells) {
    const cell = document.createElement(tag);
    cell.textContent = text;
    line.append(cell);
  }
};
byId('device').textContent = snapshot.device;
byId('total').textContent = size(snapshot.total.allocated_bytes) + ' in use, ' +
    size(snapshot.total.reserved_bytes) + ' held in ' + snapshot.total.segments + ' segments, limit ' +
    (snapshot.limit === null ? 'none' : size(snapshot.limit)) + '; page-locked host memory: ' +
    size(snapshot.pinned.allocated_bytes) + ' in use, ' + size(snapshot.pinned.reserved_bytes) +
    ' held';
row(byId('pools'), 'th', ['pool', 'uses', 'in use', 'held', 'peak in use', 'blocks', 'segments']);
const names = {};
for (const pool of snapshot.pools) {
  names[pool.id] = pool.name;
  row(byId('pools'), 'td', [pool.name, pool.use_count, size(pool.allocated_bytes),
      size(pool.reserved_bytes), size(pool.peak_allocated_bytes), pool.blocks, pool.segments]);
}
const total = (segment) => segment.blocks.reduce((sum, block) => sum + block.bytes, 0);
const widest = Math.max(1, ...snapshot.segments.map(total));
for (const segment of snapshot.segments) {
  const bar = document.createElement('div');
  bar.className = 'segment';
  bar.style.width = Math.max(2, 100 * total(segment) / widest) + '%';
  for (const block of segment.blocks) {
    const piece = document.createElement('div');
    piece.className = block.state;
    piece.style.flex = block.bytes + ' 0 0';
    piece.onmouseenter = () => {
      byId('about').textContent = names[segment.pool] + ', 0x' + block.address.toString(16) + ': ' +
          size(block.bytes) + ' ' + block.state.replace('_', ' ') + ', asked for ' +
          size(block.requested) + ', stream ' + block.stream + (place(block) && ', ' + place(block));
    };
    bar.append(piece);
  }
  byId('segments').append(bar);
}
row(byId('history'), 'th', ['action', 'time in us', 'size', 'address', 'pool', 'stream', 'place']);
for (const event of snapshot.history) {
  row(byId('history'), 'td', [event.action, event.microseconds, size(event.bytes),
      '0x' + event.address.toString(16), names[event.pool] || event.pool, event.stream,
      place(event)]);
}
</script>
</body>
</html>
)";

}  // namespace

std::string detail::snapshot_page(const std::string& json) { return kHead + json + kTail; }

}  // namespace capstan
