// Figures in words, as every part of the board says them.

const number = new Intl.NumberFormat("en");

/** "1 job", "1,204 jobs" @param {number} count @param {string} one @param {string} [many] */
export function counted(count, one, many = `${one}s`) {
  return `${number.format(count)} ${count === 1 ? one : many}`;
}

/** "0.3/s", "52/s"; nothing is a dash @param {number} perSecond */
export function rate(perSecond) {
  return perSecond ? `${perSecond < 10 ? perSecond.toFixed(1) : Math.round(perSecond)}/s` : "–";
}
