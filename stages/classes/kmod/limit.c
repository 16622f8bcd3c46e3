// SPDX-License-Identifier: GPL-2.0
/* See limit.h. */
#include "limit.h"

#define SMOOTH_SHIFT 4		/* `service`, `deviation`: the last 16 answers or so, */
#define SECOND_SHIFT 30		/* or half a second, in ns */
#define WEIGHT_SHIFT 20
#define TOGETHER NSEC_PER_MSEC
#define TOGETHER_MOST (1U << 20)
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

/* `mean`, with a part of `share` of 2^WEIGHT_SHIFT from `value`; values are at most 2^42, and `share` at most 2^16: no overflow. */
static u64 smoothed(u64 mean, u64 value, u64 share)
{
	return value > mean ? mean + ((value - mean) * share >> WEIGHT_SHIFT) : mean - ((mean - value) * share >> WEIGHT_SHIFT);
}

/*
 * Over the last 16 answers, and half a second: where many come at once, and then none for long, the mean is not that of the last few.
 * Answers count for the time since those before them, and all of a millisecond together, or else their shares would be too small to
 * change anything. Sums are of fewer than 2^20 answers.
 */
static void smooth(struct limit *limit, u64 took, u64 now)
{
	u64 passed = now - limit->began, share;

	if (!limit->service)
		limit->service = took;
	limit->answers++;
	limit->sum += took;
	limit->off += took > limit->service ? took - limit->service : limit->service - took;
	if (passed < TOGETHER && limit->answers < TOGETHER_MOST)
		return;
	share = min(passed >> (SECOND_SHIFT - 1 - WEIGHT_SHIFT), 1ULL << (WEIGHT_SHIFT - SMOOTH_SHIFT));
	limit->deviation = smoothed(limit->deviation, div_u64(limit->off, limit->answers), share);
	limit->service = max(smoothed(limit->service, div_u64(limit->sum, limit->answers), share), 1ULL);
	limit->began = now;
	limit->answers = 0;
	limit->sum = 0;
	limit->off = 0;
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

bool limit_answer(struct limit *limit, u64 handed_on, u64 heard, u64 at_most, u32 inside, u64 now)
{
	u64 took = time_of_service(limit, handed_on, heard, at_most, now);
	bool was_open = limit->now >= LIMIT_MOST;

	limit->backoff = 0;
	smooth(limit, took, now);
	if (limit->fixed)
		return false;
	finding_answer(&limit->finding, took, handed_on, inside, now);
	limit->now = limit->finding.now;
	return was_open && limit->now < LIMIT_MOST;
}
