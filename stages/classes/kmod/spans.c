// SPDX-License-Identifier: GPL-2.0
/* See spans.h. */
#include "spans.h"

/* How far `to` is behind `from`; below zero when it is before. */
static __s32 distance(__u32 from, __u32 to)
{
	return (__s32)(to - from);
}

static int touch(struct span a, struct span b)
{
	return distance(a.from, b.to) >= 0 && distance(b.from, a.to) >= 0;
}

void spans_add(struct spans *spans, __u32 from, __u32 to)
{
	struct span added = { from, to };
	__u32 i = 0;

	/* Those that it touches become part of it: they touch no others, so once round is enough. */
	while (i < spans->count) {
		struct span joined = spans->span[i];

		if (!touch(added, joined)) {
			i++;
			continue;
		}
		if (distance(added.from, joined.from) > 0)
			joined.from = added.from;
		if (distance(joined.to, added.to) > 0)
			joined.to = added.to;
		if (joined.to - joined.from > SPAN_MOST)
			return;
		added = joined;
		spans->span[i] = spans->span[--spans->count];
	}
	if (spans->count < SPANS)
		spans->span[spans->count++] = added;
}

/* A range that is no longer than the other one can only begin in it and end in it as it seems to. */
static int covers(struct span span, __u32 from, __u32 to)
{
	return to - from <= span.to - span.from && distance(span.from, from) >= 0 && distance(to, span.to) >= 0;
}

int spans_cover(const struct spans *spans, __u32 from, __u32 to)
{
	__u32 i;

	for (i = 0; i < spans->count; i++)
		if (covers(spans->span[i], from, to))
			return 1;
	return 0;
}

int spans_end_at(const struct spans *spans, __u32 number)
{
	__u32 i;

	for (i = 0; i < spans->count; i++)
		if (spans->span[i].to == number)
			return 1;
	return 0;
}
