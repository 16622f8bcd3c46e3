/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Which bytes of a TCP stream are here: a few ranges of sequence numbers (RFC 9293, section 3.4), which neither overlap nor
 * touch. A client's segments make one range, each loss one more. What does not fit in is forgotten, so that a segment is
 * taken for a repeated one only if all of it is here, whatever sequence numbers others send. Nothing depends on the kernel.
 *
 * Numbers are compared modulo 2^32, which says what is before what within half of that: a range stays below SPAN_MOST.
 */
#ifndef TARN_CLASSES_SPANS_H
#define TARN_CLASSES_SPANS_H

#include <linux/types.h>

#define SPANS 4
#define SPAN_MOST (1U << 30)

struct span {
	__u32 from, to;		/* the first number, and that behind the last */
};

struct spans {
	__u32 count;
	struct span span[SPANS];
};

/* Adds a range of 1 to SPAN_MOST numbers. */
void spans_add(struct spans *spans, __u32 from, __u32 to);

/* Whether all of a range is here. */
int spans_cover(const struct spans *spans, __u32 from, __u32 to);

/* Whether a range ends before this number. */
int spans_end_at(const struct spans *spans, __u32 number);

#endif
