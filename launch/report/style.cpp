#include "launch/report/style.hpp"

namespace onebatch::launch::report {

// Colours keep their contrast in the light and in the dark: text 4.5 to 1 and more, what is drawn 3 to 1. What a colour
// means is said by a pattern, dashes or a letter too.
const std::string_view k_style = R"css(
:root{color-scheme:light dark;--page:#f6f7f9;--card:#fff;--text:#1b1f24;--faint:#57606a;--line:#d0d7de;--grid:#e4e8ec;--mark:#b42318;--note:#fff4d6;
--c0:#1f5fa8;--c1:#b54708;--c2:#6b3fa0;--c3:#1a7f5a;--c4:#b4236b;--c5:#0b7285;--c6:#7a5c00;--c7:#5c636a;
--f0:#1f5fa8;--f1:#b54708;--f2:#6b3fa0;--f3:#eef1f4;--f4:#5c636a;--f5:#b42318;--on:#fff;--over:#fff}
@media (prefers-color-scheme:dark){:root{--page:#0f1216;--card:#181c22;--text:#e6e9ed;--faint:#a2abb5;--line:#3a424b;--grid:#2a3038;--mark:#ff8a7a;--note:#3a3115;
--c0:#6cb0f5;--c1:#f5a25d;--c2:#c3a0f0;--c3:#5fd3a5;--c4:#f58bb8;--c5:#5fd0e0;--c6:#e0c050;--c7:#b0b8c0;
--f0:#6cb0f5;--f1:#f5a25d;--f2:#c3a0f0;--f3:#252b33;--f4:#8d96a0;--f5:#ff8a7a;--on:#0d1014;--over:#0d1014}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:1540px;padding:16px;background:var(--page);color:var(--text);font:15px/1.45 system-ui,-apple-system,"Segoe UI",Roboto,"Liberation Sans",sans-serif}
h1{font-size:1.5em;margin:.2em 0;overflow-wrap:anywhere}h2{font-size:1.2em;margin:0 0 .5em}h3{font-size:1em;margin:1em 0 .4em;overflow-wrap:anywhere}
p{margin:.3em 0 .6em}header p{color:var(--faint)}
nav{display:flex;flex-wrap:wrap;gap:.2em 1em;margin:.6em 0 1em}a{color:var(--c0)}
section{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:14px 16px;margin:0 0 14px}
code,pre{font-family:ui-monospace,"Liberation Mono",Menlo,monospace;font-size:.92em;overflow-wrap:anywhere}
pre{white-space:pre-wrap;background:var(--page);border:1px solid var(--line);border-radius:6px;padding:8px 10px;margin:.3em 0 .8em}
.note{background:var(--note);border-left:4px solid var(--c6);padding:.3em .7em}
.wide{overflow-x:auto;margin:.2em 0 .8em}
table{border-collapse:collapse;font-size:.94em}caption{text-align:left;color:var(--faint);padding-bottom:.3em}
th,td{text-align:left;vertical-align:top;padding:.22em .9em .22em 0;border-bottom:1px solid var(--grid)}
th{font-weight:600}thead th{border-bottom:1px solid var(--line)}td,td code,th code{overflow-wrap:break-word}td.n{text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}
tbody th[scope=row]{font-weight:500}td.text{min-width:16em;overflow-wrap:anywhere}td.own{font-weight:700;background:var(--grid)}
tr.bad td:first-child{border-left:4px solid var(--mark);padding-left:.5em}tr.warned td:first-child{border-left:4px solid var(--c6);padding-left:.5em}
#summary th[scope=row]{white-space:nowrap;color:var(--faint)}#summary td{min-width:9em}
.charts{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,330px),1fr));gap:14px 22px}
figure{margin:0;min-width:0}figcaption{font-weight:600;overflow-wrap:anywhere}
.chart>svg{width:100%;height:auto;display:block}
.chart text{font-size:11px;fill:var(--text)}.e{text-anchor:end}.m{text-anchor:middle}
.grid{stroke:var(--grid);stroke-width:1}.axis{stroke:var(--faint);stroke-width:1}
.facts,.read{font-size:.86em;margin:.1em 0;color:var(--text)}.read{color:var(--faint);min-height:1.45em}
.level{stroke:var(--text);stroke-width:1.5;stroke-dasharray:6 4}.event{stroke:var(--faint);stroke-dasharray:2 3}
.cross{stroke:var(--text);stroke-width:1}
.key{white-space:nowrap;margin-right:.8em}.key svg,.swatch{vertical-align:-2px;margin-right:.3em}
.rows{display:grid;grid-template-columns:1fr;gap:3px 0}
.row{display:grid;grid-template-columns:minmax(9em,17em) minmax(200px,1fr) minmax(8em,17em);gap:0 12px;align-items:center}
.who{font-size:.9em;overflow-wrap:anywhere}.what{font-size:.9em;color:var(--text);font-variant-numeric:tabular-nums}
.bar{width:100%;height:20px;display:block;overflow:visible}.scale{width:100%;height:22px;display:block;overflow:visible}
.bar text{font-size:11px;text-anchor:middle}.scale text{font-size:11px;fill:var(--text)}.scale line{stroke:var(--faint)}
.defs{position:absolute}
.f0{fill:var(--f0)}.f1{fill:url(#p1)}.f2{fill:url(#p2)}.f3{fill:var(--f3);stroke:var(--faint);stroke-width:1}.f4{fill:url(#p4)}.f5{fill:url(#p5)}
.t0,.t1,.t2,.t4,.t5{fill:var(--on);font-weight:600}.t1,.t2,.t4{paint-order:stroke;stroke-width:3px;stroke-linejoin:round}.t1{stroke:var(--f1)}.t2{stroke:var(--f2)}.t4{stroke:var(--f4)}.t3{fill:var(--text)}
.p1{fill:var(--f1)}.p2{fill:var(--f2)}.p4{fill:var(--f4)}.p5{fill:var(--f5)}pattern path{stroke:var(--over);stroke-width:1.2;opacity:.75;fill:none}pattern circle{fill:var(--over);opacity:.75}
.cut{stroke:var(--on);stroke-width:1}.mark{stroke:var(--text);stroke-width:1.6;stroke-dasharray:4 3}
.l0,.l1,.l2,.l3,.l4,.l5,.l6,.l7{fill:none;stroke-width:1.6;stroke-linejoin:round}.b0,.b1,.b2,.b3,.b4,.b5,.b6,.b7{opacity:.25}
.l0{stroke:var(--c0)}.l1{stroke:var(--c1);stroke-dasharray:7 3}.l2{stroke:var(--c2);stroke-dasharray:2 2}.l3{stroke:var(--c3);stroke-dasharray:8 3 2 3}
.l4{stroke:var(--c4)}.l5{stroke:var(--c5);stroke-dasharray:4 4}.l6{stroke:var(--c6);stroke-dasharray:10 4}.l7{stroke:var(--c7);stroke-dasharray:2 4}
.b0,.c0,.w0{fill:var(--c0)}.b1,.c1,.w1{fill:var(--c1)}.b2,.c2,.w2{fill:var(--c2)}.b3,.c3,.w3{fill:var(--c3)}.b4,.c4,.w4{fill:var(--c4)}.b5,.c5,.w5{fill:var(--c5)}.b6,.c6,.w6{fill:var(--c6)}.b7,.c7,.w7{fill:var(--c7)}
.chart .w0{fill:var(--c0)}.chart .w1{fill:var(--c1)}.chart .w2{fill:var(--c2)}.chart .w3{fill:var(--c3)}.chart .w4{fill:var(--c4)}.chart .w5{fill:var(--c5)}.chart .w6{fill:var(--c6)}.chart .w7{fill:var(--c7)}
@media (max-width:760px){body{padding:8px}.key{white-space:normal}section{padding:10px}.row{grid-template-columns:1fr;gap:0;padding-bottom:5px}.row .who:empty,.row .what:empty{display:none}.wide table{font-size:.88em}td.text{min-width:11em}}
@media print{:root{--page:#fff;--card:#fff;--text:#000;--faint:#444;--line:#999;--grid:#ccc;--mark:#a00;--note:#fff;--c0:#1f5fa8;--c1:#b54708;--c2:#6b3fa0;--c3:#1a7f5a;--c4:#b4236b;--c5:#0b7285;--c6:#7a5c00;--c7:#5c636a;
--f0:#1f5fa8;--f1:#b54708;--f2:#6b3fa0;--f3:#fff;--f4:#5c636a;--f5:#b42318;--on:#fff;--over:#fff;color-scheme:light}
body{max-width:none;padding:0;font-size:10.5pt}nav,details{display:none}section{border:0;border-top:1px solid #999;border-radius:0;padding:8px 0}
.row,figure,tr{break-inside:avoid}h2,h3{break-after:avoid}.wide{overflow:visible}.charts{grid-template-columns:1fr 1fr}.read:empty{display:none}
svg *{-webkit-print-color-adjust:exact;print-color-adjust:exact}}
)css";

const std::string_view k_script = R"js(
"use strict";
document.querySelectorAll("figure.chart").forEach(function (figure) {
  const data = JSON.parse(figure.querySelector("script").textContent);
  const svg = figure.querySelector("svg"), read = figure.querySelector(".read"), still = read.textContent;
  const [left, right] = data.box, [low, high] = data.x;
  const text = (v) => (Math.abs(v) >= 1e6 || (v !== 0 && Math.abs(v) < 1e-3) ? v.toExponential(3) : +v.toPrecision(5)) + (data.unit ? " " + data.unit : "");
  const line = document.createElementNS("http://www.w3.org/2000/svg", "line");
  line.setAttribute("class", "cross"); line.setAttribute("y1", data.box[2]); line.setAttribute("y2", data.box[3]);
  const nearest = (bins, x) => bins.reduce((a, b) => Math.abs((b[0] + b[1]) / 2 - x) < Math.abs((a[0] + a[1]) / 2 - x) ? b : a, bins[0]);
  let at = null;
  function show(x) {
    at = Math.min(high, Math.max(low, x));
    const parts = data.curves.filter((curve) => curve.bins.length).map(function (curve) {
      const bin = nearest(curve.bins, at), many = bin[5] > 1;
      return (data.curves.length > 1 ? curve.name + ", " : "") + data.x_name + " " + bin[0] + (bin[0] === bin[1] ? "" : " to " + bin[1]) + ": " + text(bin[3]) +
        (many ? " (mean; " + text(bin[2]) + " to " + text(bin[4]) + ")" : "");
    });
    const px = left + (right - left) * (high > low ? (at - low) / (high - low) : 0);
    line.setAttribute("x1", px); line.setAttribute("x2", px); svg.appendChild(line);
    read.textContent = parts.join("; ");
  }
  function leave() { at = null; line.remove(); read.textContent = still; }
  svg.addEventListener("pointermove", function (event) {
    const box = svg.getBoundingClientRect(), px = (event.clientX - box.left) / box.width * svg.viewBox.baseVal.width;
    show(low + (high - low) * (px - left) / (right - left));
  });
  svg.addEventListener("pointerleave", leave);
  svg.addEventListener("blur", leave);
  svg.addEventListener("keydown", function (event) {
    const step = (high - low) / 100 * (event.key === "ArrowLeft" ? -1 : event.key === "ArrowRight" ? 1 : 0);
    if (step === 0) return;
    event.preventDefault(); read.setAttribute("aria-live", "polite"); show((at === null ? low : at) + step);
  });
});
)js";

const std::string_view k_script_hash = "sha256-rKd4YuIEFvfp4RjzpaO229c44wgIKRgwFSPaZg+A/DA=";

}  // namespace onebatch::launch::report
