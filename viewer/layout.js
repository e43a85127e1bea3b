// Where things lie: layers, each below what it reads; modules that are unfolded are laid out by themselves.
//
// Source: K. Sugiyama, S. Tagawa, M. Toda, Methods for visual understanding of hierarchical system structures,
// 1981; the places of a layer by isotonic regression.
function place(items, edges) {
  // items: w, h; edges: from, to, the first ahead of the second; in a box, ports lie at its ends
  const rank = items.map(() => 0),
    out = items.map(() => []);
  edges.forEach(edge => out[edge[0]].push(edge));
  items.forEach((_, n) =>
    out[n].forEach(edge => {
      rank[edge[1]] = Math.max(rank[edge[1]], rank[n] + 1);
    }),
  );
  const fed = new Set(edges.map(edge => edge[1])),
    last = Math.max(0, ...rank);
  items.forEach((item, n) => {
    if (item.port === "out") rank[n] = last;
    else if (!item.port && !fed.has(n) && out[n].length) rank[n] = Math.min(...out[n].map(edge => rank[edge[1]])) - 1;
  });
  const layers = Array.from({ length: Math.max(-1, ...rank) + 1 }, () => []);
  const points = items.map((item, n) => ({ w: item.w, h: item.h, up: [], down: [], rank: rank[n], bend: !!item.port }));
  points.forEach(point => layers[point.rank].push(point));
  const routes = edges.map(([from, to]) => {
    const way = [points[from]];
    for (let r = rank[from] + 1; r < rank[to]; r++) {
      const bend = { w: 10, h: 0, up: [], down: [], rank: r, bend: true };
      layers[r].push(bend);
      way.push(bend);
    }
    way.push(points[to]);
    for (let n = 1; n < way.length; n++) {
      way[n - 1].down.push(way[n]);
      way[n].up.push(way[n - 1]);
    }
    return way;
  });
  const number = layer =>
    layer.forEach((point, n) => {
      point.at = n;
    });
  layers.forEach(number);
  for (let turn = 0; turn < 10; turn++) {
    const down = turn % 2 === 0,
      side = down ? "up" : "down";
    for (const layer of down ? layers : [...layers].reverse()) {
      for (const point of layer)
        point.wish = point[side].length
          ? point[side].reduce((sum, other) => sum + other.at, 0) / point[side].length
          : point.at;
      layer.sort((a, b) => a.wish - b.wish || a.at - b.at);
      number(layer);
    }
  }
  for (const layer of layers) {
    let x = 0;
    for (const point of layer) {
      point.x = x + point.w / 2;
      x += point.w + 18;
    }
  }
  for (let turn = 0; turn < 12; turn++) {
    const sides = turn > 9 ? ["up", "down"] : [turn % 2 ? "down" : "up"];
    for (const layer of turn % 2 ? [...layers].reverse() : layers) settle(layer, sides);
  }
  let y = 0;
  const rows = layers.map(layer => {
    const top = y,
      h = Math.max(0, ...layer.map(point => point.h));
    y += h + (h ? 30 : 12);
    return { top, h };
  });
  const left = Math.min(0, ...points.map(point => point.x - point.w / 2), ...layers.flat().map(point => point.x - 5));
  for (const point of layers.flat()) {
    point.x -= left;
    point.y = rows[point.rank].top;
    point.row = rows[point.rank];
  }
  const w = Math.max(0, ...layers.flat().map(point => point.x + point.w / 2));
  return { points, routes, w, h: Math.max(0, y - 30) };
}
function settle(layer, sides) {
  // the nearest places to those wished for in this order: isotonic regression
  const blocks = [];
  let room = 0,
    before = null;
  for (const point of layer) {
    if (before) room += before.w / 2 + point.w / 2 + (before.bend && point.bend ? 6 : 18);
    before = point;
    const near = sides.flatMap(side => point[side]),
      weight = point.bend ? 3 : 1;
    const wish = near.length ? near.reduce((sum, other) => sum + other.x, 0) / near.length : point.x;
    point.room = room;
    blocks.push({ sum: weight * (wish - room), weight, points: [point] });
    while (blocks.length > 1) {
      const last = blocks[blocks.length - 1],
        previous = blocks[blocks.length - 2];
      if (previous.sum / previous.weight <= last.sum / last.weight) break;
      blocks.pop();
      previous.sum += last.sum;
      previous.weight += last.weight;
      previous.points.push(...last.points);
    }
  }
  for (const block of blocks) for (const point of block.points) point.x = block.sum / block.weight + point.room;
}
function sizeOf(label, sub) {
  return {
    w: Math.max(64, Math.min(230, 18 + Math.max(7 * Math.min(label.length, 30), 5.6 * Math.min(sub.length, 38)))),
    h: sub ? 38 : 24,
  };
}
function groupsOf(graph, box) {
  // by module, but apart where what one call gives comes back to a later one through others
  const groups = [],
    latest = new Map();
  for (const node of box.members) {
    const name = node.path[box.level],
      known = name === undefined ? undefined : latest.get(name);
    if (known && (groups[groups.length - 1] === known || !returns(graph, known[1], node))) known[1].push(node);
    else {
      const group = [name, [node]];
      groups.push(group);
      if (name !== undefined) latest.set(name, group);
    }
  }
  return groups;
}
function returns(graph, members, last) {
  const own = new Set(members.map(node => node.id)),
    seen = new Set();
  const waiting = members.flatMap(node => graph.readers.get(node.id)).filter(id => !own.has(id));
  while (waiting.length) {
    const id = waiting.pop(),
      node = graph.byId.get(id);
    if (seen.has(id) || node.order >= last.order) continue;
    seen.add(id);
    if (last.from.includes(id)) return true;
    waiting.push(...graph.readers.get(id));
  }
  return false;
}
function layout(graph, open) {
  // a tree of what is drawn: nodes, folded modules, and boxes around those in unfolded ones
  const root = { path: "", level: 0, items: [], members: graph.nodes };
  const visible = new Map(); // by a node's id: what stands for it
  (function arrange(box) {
    for (const [name, members] of groupsOf(graph, box)) {
      if (name === undefined || members.length === 1) {
        // a module of one op is that op
        for (const node of members) {
          const label = [node.path.slice(box.level).join("."), node.label].filter(Boolean).join(": ");
          const item = { ...sizeOf(label, node.sub), label, node, order: node.order, box, key: `n${node.id}` };
          box.items.push(item);
          visible.set(node.id, item);
        }
        continue;
      }
      const path = box.path ? `${box.path}.${name}` : name,
        sub = `${members.length} nodes`;
      const item = {
        ...sizeOf(name, sub),
        label: name,
        sub,
        path,
        level: box.level + 1,
        items: [],
        members,
        order: members[0].order,
        box,
        key: `g${members[0].id} ${path}`,
      };
      if (open.has(path)) {
        item.isOpen = true;
        arrange(item);
      } else for (const node of members) visible.set(node.id, item);
      box.items.push(item);
    }
    box.items.sort((a, b) => a.order - b.order);
  })(root);
  const edges = new Map();
  for (const node of graph.nodes)
    for (const from of node.from) {
      const a = visible.get(from),
        b = visible.get(node.id);
      if (a && b && a !== b) edges.set(`${a.key} ${b.key}`, [a, b]);
    }
  const within = item => {
    const found = [item];
    while (found[0].box) found.unshift(found[0].box);
    return found;
  };
  const levels = new Map(),
    ways = []; // by box: pairs of its items, and of ports at its ends for what comes and goes
  const leg = (box, key, pair) => {
    if (!levels.has(box)) levels.set(box, new Map());
    if (!levels.get(box).has(key)) levels.get(box).set(key, pair);
    return { box, key };
  };
  for (const [a, b] of edges.values()) {
    const one = within(a),
      two = within(b);
    let n = 0;
    while (one[n + 1] === two[n + 1]) n++;
    const [from, to] = [one[n + 1], two[n + 1]],
      turned = from.order > to.order;
    const leaves = one
      .slice(n + 2)
      .map(item => leg(item.box, `${item.key} out`, [item, "out"]))
      .reverse();
    const across = leg(
      one[n],
      turned ? `${to.key} ${from.key}` : `${from.key} ${to.key}`,
      turned ? [to, from] : [from, to],
    );
    const enters = two.slice(n + 2).map(item => leg(item.box, `in ${item.key}`, ["in", item]));
    ways.push({ a, b, leaves, across, enters, turned });
  }
  (function measure(box) {
    for (const item of box.items) if (item.isOpen) measure(item);
    const pairs = [...(levels.get(box) || new Map()).entries()],
      port = side => pairs.filter(([, pair]) => pair.includes(side)).map(([key]) => ({ w: 10, h: 0, port: side, key }));
    const all = [...port("in"), ...box.items, ...port("out")],
      number = new Map(all.map((item, n) => [item.port ? item.key : item, n]));
    const found = place(
      all,
      pairs.map(([key, pair]) => pair.map(end => number.get(typeof end === "string" ? key : end))),
    );
    box.routes = new Map(pairs.map(([key], n) => [key, found.routes[n]]));
    for (const item of box.items) item.point = found.points[number.get(item)];
    box.w = Math.max(found.w + 24, box.label ? 7 * box.label.length + 40 : 0);
    box.inset = (box.w - found.w) / 2;
    box.head = box.box ? 26 : 12;
    box.h = found.h + box.head + 12;
  })(root);
  (function settleDown(box, x, y) {
    box.left = x;
    box.top = y;
    for (const item of box.items) {
      const left = x + box.inset + item.point.x - item.w / 2,
        top = y + box.head + item.point.y + (item.point.row.h - item.h) / 2;
      item.x = left + item.w / 2;
      item.y = top;
      if (item.isOpen) settleDown(item, left, top);
    }
  })(root, 0, 0);
  return { root, visible, ways };
}
function pathOf(way) {
  const points = [[way.a.x, way.a.y + way.a.h]];
  const go = ({ box, key }, first, last, turned) => {
    const bends = box.routes.get(key).slice(first, last);
    for (const bend of turned ? bends.reverse() : bends) {
      const x = box.left + box.inset + bend.x,
        y = box.top + box.head + bend.y,
        ends = [
          [x, y],
          [x, y + bend.row.h],
        ];
      points.push(...(turned ? ends.reverse() : ends));
    }
  };
  for (const leg of way.leaves) go(leg, 1);
  go(way.across, 1, -1, way.turned);
  for (const leg of way.enters) go(leg, 0, -1);
  points.push([way.b.x, way.b.y]);
  let text = `M${points[0][0].toFixed(1)} ${points[0][1].toFixed(1)}`;
  for (let n = 1; n < points.length; n++) {
    const [x0, y0] = points[n - 1],
      [x1, y1] = points[n],
      pull = Math.max(8, Math.abs(y1 - y0) / 2);
    text +=
      x0 === x1
        ? `L${x1.toFixed(1)} ${y1.toFixed(1)}`
        : `C${x0.toFixed(1)} ${(y0 + pull).toFixed(1)} ${x1.toFixed(1)} ${(y1 - pull).toFixed(1)} ${x1.toFixed(1)} ${y1.toFixed(1)}`;
  }
  return text;
}
