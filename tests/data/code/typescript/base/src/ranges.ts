/** The numbers of "1-3,7": 1, 2, 3, 7. */
export function expand(text: string): number[] {
  const numbers: number[] = [];
  for (const part of text.split(",")) {
    const match = /^(\d+)(?:-(\d+))?$/.exec(part);
    if (match === null) throw new RangeError(`no range: ${part}`);
    const first = Number(match[1]);
    const last = match[2] === undefined ? first : Number(match[2]);
    for (let number = first; number <= last; number++) numbers.push(number);
  }
  return numbers;
}
