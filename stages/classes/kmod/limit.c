// SPDX-License-Identifier: GPL-2.0
/* See limit.h. */
#include "limit.h"

#define SMOOTH_SHIFT 4		/* `service`, `deviation`: the last 16 answers or so */
#define DEVIATIONS 4		/* as for TCP's retransmission timer (RFC 6298) */
#define LIKELY_LEAST 2		/* times the mean */
#define LIKELY_MOST 4
#define LIKELY_AT_FIRST (100ULL * NSEC_PER_MSEC)
#define BACKOFF_MOST 3
#define TOOK_MOST (1ULL << 42)	/* ns, more than an hour: sums and products of it do not overflow */

void limit_set(struct limit *limit, u32 fixed)
{
	if (!fixed && (limit->fixed || !limit->now))
		finding_begin(&limit->finding);
	limit->fixed = fixed;
	limit->now = fixed ? min(fixed, (u32)LIMIT_MOST) : limit->finding.now;
}

u64 limit_nearly_all(const struct limit *limit)
{
	return limit->service + DEVIATIONS * limit->deviation;
}

u64 limit_likely(const struct limit *limit)
{
	u64 likely = clamp(limit_nearly_all(limit), LIKELY_LEAST * limit->service, LIKELY_MOST * limit->service);

	return (limit->service ? likely : LIKELY_AT_FIRST) << limit->backoff;
}

/*
 * A service that stands still for a moment answers nobody: it must not be given `limit` more requests every time that twice
 * its usual time has passed. Requests that were handed on together double it once.
 */
void limit_back_off(struct limit *limit, u64 handed_on, u64 now)
{
	if (handed_on < limit->backed_off)
		return;
	limit->backed_off = now;
	limit->backoff = min(limit->backoff + 1, (u32)BACKOFF_MOST);
}

static void smooth(struct limit *limit, u64 took)
{
	u64 off;

	if (!limit->service) {
		limit->service = took;
		return;
	}
	off = took > limit->service ? took - limit->service : limit->service - took;
	limit->deviation += (off >> SMOOTH_SHIFT) - (limit->deviation >> SMOOTH_SHIFT);
	limit->service += (took >> SMOOTH_SHIFT) - (limit->service >> SMOOTH_SHIFT);
}

u64 limit_usual(const struct limit *limit)
{
	return limit->service ?: LIKELY_AT_FIRST;
}

/*
 * A client that sends the rest of its request late must not make the service seem slow, nor one that sends more than it make it seem
 * quick: what counts is the time since it was heard of last, but no less than is usual, unless all of it took less. A service that
 * has become slower shows all the same, answer by answer.
 */
static u64 time_of_service(const struct limit *limit, u64 handed_on, u64 heard, u64 at_most, u64 now)
{
	u64 all = min(now - handed_on, at_most);

	if (heard == handed_on)
		return clamp(all, 1ULL, TOOK_MOST);
	return clamp(max(min(now - heard, all), min(all, limit->service)), 1ULL, TOOK_MOST);
}

void limit_answer(struct limit *limit, u64 handed_on, u64 heard, u64 at_most, u32 inside, u64 now)
{
	u64 took = time_of_service(limit, handed_on, heard, at_most, now);

	limit->backoff = 0;
	smooth(limit, took);
	if (limit->fixed)
		return;
	finding_answer(&limit->finding, took, handed_on, inside, now);
	limit->now = limit->finding.now;
}
