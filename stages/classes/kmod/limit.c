// SPDX-License-Identifier: GPL-2.0
/*
 * See limit.h. Finding the limit is TCP Vegas's idea (Brakmo and Peterson, 1995), as others use it for services: a
 * service that works on c requests at a time answers in the time T that it needs for one as long as it has at most c of
 * them; with more, n, it takes T * n / c. So n * (1 - T/R) of them, for the present mean R, wait inside. One should: with
 * none the service would be idle between an answer and the next request, and more are out of the classes' reach.
 *
 * It begins with a single request and doubles until one waits inside, as TCP's slow start: a limit that is too high at
 * first would show T only with requests waiting. T is measured anew every PROBE_STEPS steps, with a limit at which
 * nothing waits inside (as BBR and Envoy's gradient controller do); until then it is the least mean seen.
 *
 * Means are over as many answers as the limit, at least SAMPLES: response times of single requests vary too much.
 */
#include <linux/kernel.h>
#include <linux/math64.h>
#include <linux/minmax.h>
#include <linux/time64.h>

#include "limit.h"

#define SAMPLES 32
#define PROBE_STEPS 64
#define WAITING_SHIFT 4		/* requests that wait inside, in 1/16 */
#define WAITING_LEAST 8
#define WAITING_AIM 16
#define WAITING_MOST 32
#define SMOOTH_SHIFT 4		/* `service`, `deviation`: the last 16 answers or so */
#define DEVIATIONS 4		/* as for TCP's retransmission timer (RFC 6298) */
#define LIKELY_LEAST 2		/* times the mean */
#define LIKELY_MOST 4
#define LIKELY_AT_FIRST (100ULL * NSEC_PER_MSEC)
#define BACKOFF_MOST 3

void limit_set(struct limit *limit, u32 fixed)
{
	limit->fixed = fixed;
	if (fixed) {
		limit->now = min_t(u32, fixed, LIMIT_MOST);
		limit->probed = 0;
	} else if (!limit->now) {
		limit->now = 1;
		limit->is_starting = true;
	}
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
	limit->backoff = min_t(u32, limit->backoff + 1, BACKOFF_MOST);
}

static void change(struct limit *limit, u32 to)
{
	limit->to_skip = max(limit->now, to);
	limit->now = clamp_t(u32, to, 1, LIMIT_MOST);
}

/* Looks at T: for one step, a limit at which nothing has to wait inside. */
static void probe(struct limit *limit)
{
	u32 spare = (WAITING_MOST >> WAITING_SHIFT) + 1;

	limit->steps = 0;
	limit->probed = limit->now;
	change(limit, limit->now > spare ? limit->now - spare : 1);
}

/* What the mean of a step says about the limit. */
static void step(struct limit *limit, u64 mean)
{
	u64 waiting;

	if (limit->probed) {
		limit->unloaded = mean;
		change(limit, limit->probed);
		limit->probed = 0;
		return;
	}
	if (!limit->unloaded || mean < limit->unloaded)
		limit->unloaded = mean;
	/* Without requests waiting here, the limit was not what kept the service from having more. */
	if (!limit->was_reached)
		return;
	if (++limit->steps >= PROBE_STEPS) {
		probe(limit);
		return;
	}
	waiting = div64_u64(((u64)limit->now << WAITING_SHIFT) * (mean - limit->unloaded), mean);
	if (waiting < WAITING_LEAST) {
		change(limit, limit->now + (limit->is_starting ? limit->now : 1));
		return;
	}
	limit->is_starting = false;
	if (waiting > WAITING_MOST)
		change(limit, limit->now - min_t(u64, (waiting - WAITING_AIM) >> WAITING_SHIFT, limit->now - 1));
}

static void smooth(struct limit *limit, u64 nanoseconds)
{
	u64 off;

	if (!limit->service) {
		limit->service = nanoseconds;
		return;
	}
	off = nanoseconds > limit->service ? nanoseconds - limit->service : limit->service - nanoseconds;
	limit->deviation += (off >> SMOOTH_SHIFT) - (limit->deviation >> SMOOTH_SHIFT);
	limit->service += (nanoseconds >> SMOOTH_SHIFT) - (limit->service >> SMOOTH_SHIFT);
}

void limit_sample(struct limit *limit, u64 nanoseconds)
{
	/* At most an hour, so that neither sums nor products overflow: 2^42 ns, 2^14 samples, 2^(14 + 4) in step(). */
	nanoseconds = clamp_t(u64, nanoseconds, 1, 1ULL << 42);
	limit->backoff = 0;
	smooth(limit, nanoseconds);
	if (limit->to_skip) {
		limit->to_skip--;
		return;
	}
	limit->sum += nanoseconds;
	if (++limit->samples < max_t(u32, SAMPLES, limit->now))
		return;
	if (!limit->fixed)
		step(limit, max_t(u64, div_u64(limit->sum, limit->samples), 1));
	limit->samples = 0;
	limit->sum = 0;
	limit->was_reached = false;
}
