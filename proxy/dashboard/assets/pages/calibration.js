import { get } from "../api.js";
import { reliability } from "../charts.js";
import { empty, h, section, table } from "../dom.js";
import { count, percent } from "../format.js";
import { head, hours } from "../windows.js";

export const title = "Calibration";

export async function render(context) {
  const { parameters, signal } = context;
  const { predictors } = await get("calibration", { hours: hours(parameters) }, signal);
  const top = head(title, context, "What probabilities were worth: of the predictions that were called 70% likely, did 70% come true?");
  if (!predictors.length) {
    return [top, empty("No prediction has been held against what came.", "Every prediction that is offered is counted here, run or not, once its turn\u2019s answer is over. It needs an agent with declared tools: agentspec.connect().")];
  }
  return [
    top,
    h("p.quiet", "On the dashed line a predictor is worth what it says; below it promises too much, above it too little. The size of a point says how many predictions it stands for, the thin line how far chance alone could move it (95%)."),
    h("div.tiles", predictors.slice(0, 12).map((one) => tile(one, signal))),
    section("In numbers", table("Calibration by predictor", [
      { name: "Predictor", cell: (one) => h("b", one.predictor) },
      { name: "Predictions", number: true, cell: (one) => count(one.count) },
      { name: "Came true", number: true, cell: (one) => percent(one.right / one.count) },
      { name: "Calibration error (ECE)", number: true, cell: (one) => one.error.toFixed(3) },
    ], predictors)),
  ];
}

function tile(one, signal) {
  const few = one.count < 30 ? h("p.note", "Few predictions: read it with care.") : null;
  return h("article.tile", [
    h("h2", one.predictor),
    h("p", h("b", one.error.toFixed(3)), " calibration error (ECE), ", count(one.count), " predictions"),
    reliability(one, signal), few,
  ]);
}
