// SPDX-License-Identifier: GPL-2.0
/*
 * See finding.h. What a request waits for inside the service, no class can do anything about; what it waits for in front of it, the
 * classes share. But whatever keeps requests back may keep the service idle. So nothing is kept back until requests would be late,
 * and then the service gets as many as it answers in a quarter of the deadline: at a rate of X answers a second, X * deadline / 4 of
 * them (Little's law). That follows a service that becomes faster, slower, or gets more workers or fewer, because X does, and nobody
 * has to know how many workers there are. The queue that it leaves inside is some four times what the service works on where the
 * deadline is twenty times what it needs for a request, and the classes have three quarters of the deadline left to share.
 *
 * It is not enough where the service needs an eighth of the deadline for a request, or more: fewer requests than it can work on
 * would be fewer answers, which would be fewer requests still. So the time that is aimed at is at least four times what it needs, as
 * long as that is half of the deadline, and at least twice that in any case. What it needs (`needs`) is the least mean of a few
 * answers, corrected in two ways: when a lower limit makes answers rarer by as much, the service had no queue, and needs as long as
 * it took; when it does not, it had one, and needs less. For that the limit is lowered now and then where `needs` alone decides.
 *
 * Requests would be late when three quarters of the answers took more than two thirds of the deadline, and as many are inside still,
 * for a response time. That is no mean: clients that send or read slowly, or wait for something to happen, take long whatever the
 * service does, and as long as others do not, the service has no queue (as in CoDel, RFC 8289, where the least wait tells a standing
 * queue). Where nearly all clients are such, only a trial can tell: half as many places for a queue cost no answer, and half as many
 * for slow clients half of the answers. Then there is no limit for a while, and when answers are not more without one, it was an
 * accident.
 */
#include "finding.h"

#define PART 4			/* of the deadline, for which the service has requests */
#define ROUND 32		/* answers: their rate varies by less than a fifth, whatever the service does */
#define ROUND_MOST 256
#define PAUSES 4		/* a round lasts as long as so many of the longest pauses between answers lately, */
#define PAUSES_PART 2		/* but no longer, for that, than this part of the deadline */
#define PAUSE_SHIFT 2		/* a longest pause is forgotten by a quarter a round */
#define GROUP 8			/* answers whose mean may be what the service needs */
#define UNREACHED_MOST 4	/* rounds, after which there is no limit any more */
#define TRY_EVERY 16		/* rounds */
#define GROWS 4			/* at most so many times the requests inside that answers account for (Little's law) */
#define NEWER 16		/* an answer of a newer request ends this part of the skipping */
#define SLOWER 7		/* by a seventh */
#define LOOKED_BACK (4 * ROUND)	/* answers */
#define PATIENCE_LEAST (10ULL * NSEC_PER_SEC)
#define PATIENCE_MOST (640ULL * NSEC_PER_SEC)
#define GAP_MOST (1ULL << 42)	/* ns: more than an hour; products with limits do not overflow */
#define LONG 8			/* deadlines */
#define FULL 8			/* times what the service needs for an answer: a queue stands */
#define FEW_LOST 8		/* answers for a lost request: no more than that are accidents */
#define DEAR (40ULL * NSEC_PER_USEC)	/* an answer: beside cheaper ones the CPU that waiting here takes is dear */
#define LEAST 2			/* requests: one that is worked on, and one that is next */

void finding_begin(struct finding *finding)
{
	*finding = (struct finding){ .now = LIMIT_MOST, .deadline = finding->deadline, .quickest = GAP_MOST };
}

static void begin_round(struct finding *finding, u64 now)
{
	finding->began = now;
	finding->answers = 0;
	finding->slow = 0;
	finding->sum = 0;
	finding->longest = 0;
	finding->long_answers = 0;
	finding->longer = 0;
	finding->lost = 0;
	finding->was_asked = false;
	finding->was_reached = false;
}

/* For how long the service has requests, where what it needs for them is no more. */
static u64 part(const struct finding *finding)
{
	u64 part = finding->deadline / PART;

	return finding->dropped_at ? min(part, finding->dropped_at / 2) : part;
}

/* For how long it has requests. */
static u64 aim(const struct finding *finding)
{
	u64 safe = min(finding->deadline / 2, 4 * finding->needs);

	return max(part(finding), max(safe, 2 * finding->needs));
}

/*
 * Few answers that take much longer than the others are those of slow clients: places that the service has no use for. So many more
 * of them are needed.
 */
static u64 aim_with_slow(const struct finding *finding)
{
	bool are_few = finding->long_answers * 4 < finding->answers;

	return aim(finding) + (are_few ? div_u64(finding->longer, finding->answers) : 0);
}

/*
 * An order is worth something, but not many answers: for a quick service there is a limit only when answers are late without one, or
 * when it is so full that requests wait in any case.
 */
static bool is_quick(const struct finding *finding)
{
	return finding->quickest < DEAR && !finding->was_reached;
}

/* An answer that takes longer makes requests late. */
static u64 too_long(const struct finding *finding)
{
	return max(is_quick(finding) ? finding->deadline : 2 * div_u64(finding->deadline, 3), 2 * finding->needs);
}

/* How many are answered in that time, when an answer leaves every `gap` ns. */
static u32 answered_in(u64 time, u64 gap)
{
	return min(div64_u64(time, gap), (u64)LIMIT_MOST);
}

static void change(struct finding *finding, u32 to, u32 inside, u64 now)
{
	/* What is inside was handed on under the limit of before. */
	finding->to_skip = to < finding->now ? inside : min(inside, to);
	finding->now = max(min(to, (u32)LIMIT_MOST), (u32)LEAST);
	begin_round(finding, now);
}

/*
 * Places are counted by to_skip. Where many requests are overdue, there are more inside than have places; their answers come for some
 * time, whatever the limit is.
 */
static u64 settles_after(const struct finding *finding)
{
	return finding->late > finding->held + finding->held / 4 ? 2 * finding->late : 0;
}

/* As change(), to see what comes of it: so all that is inside must have been answered first, as far as it ever is. */
static void try(struct finding *finding, u32 to, u32 inside, u64 now)
{
	finding->settled = now + (finding->was_open && finding->was_lowered ? finding->longest : settles_after(finding));
	change(finding, to, inside, now);
}

static void lower(struct finding *finding, u32 to, u64 gap, u32 inside, u64 now)
{
	finding->was_lowered = true;
	finding->was_raised = false;
	finding->was_open = finding->now >= LIMIT_MOST;
	finding->before = min(finding->now, inside + 1);
	finding->gap_before = gap;
	try(finding, max(to, finding->before / 2), inside, now);
}

/* To see whether there are more answers then. */
static void raise(struct finding *finding, u64 mean, u32 inside, u64 now)
{
	finding->was_raised = true;
	finding->before = finding->now;
	finding->gap_before = finding->gap;
	finding->mean_before = mean;
	finding->gap = finding->gap_least = 0;
	try(finding, finding->now + finding->now / 2 + 1, inside, now);
}

/* Whether the higher limit was worth more than half as many answers more: so the service had no queue before. */
static bool has_paid(const struct finding *finding, u64 gap)
{
	u64 more = gap < finding->gap_before ? (finding->gap_before - gap) * finding->before : 0;

	return more * 4 > (finding->now - finding->before) * gap * 3;
}

/* Whether there were answers of more than have places now (Little's law): they say nothing about the lower limit. */
static bool is_of_before(const struct finding *finding, u64 gap, u64 mean)
{
	return mean * 4 > gap * finding->now * 5;
}

/* Whether the lower limit cost answers, nearly as many as it is lower: so the service had no queue. */
static bool has_cost(const struct finding *finding, u64 gap)
{
	/* Of the answers, and of the limit, that part is missing. Gaps are at most 2^42, limits below 2^15: no overflow. */
	u64 missing = gap > finding->gap_before ? (gap - finding->gap_before) * finding->before : 0;
	u64 cut = finding->before > finding->now ? finding->before - finding->now : 0;

	if (finding->was_open)
		return missing * 4 > cut * gap * 3;
	return cut * 16 > finding->before && missing * 5 > cut * gap * 3;
}

static void smooth_gap(struct finding *finding, u64 gap)
{
	finding->gap = finding->gap ? finding->gap - finding->gap / 4 + gap / 4 : gap;
}

/*
 * There is no limit any more, since it seemed to cost answers. Whether it did shows now: are there more? Until that is known, no limit
 * is tried; when there are not, it may be at once.
 */
static void look_back(struct finding *finding, u64 now)
{
	u64 gap;

	if (!finding->stands_since) {
		finding->stands_since = finding->began;
		finding->stood = 0;
	}
	finding->stood += finding->answers;
	if (finding->stood < LOOKED_BACK)
		return begin_round(finding, now);
	gap = div_u64(now - finding->stands_since, finding->stood);
	if (gap * 4 > finding->gap_limited * 3) {
		finding->not_before = 0;
		finding->patience = 0;
	}
	finding->gap_limited = 0;
	finding->stands_since = 0;
	begin_round(finding, now);
}

/* A queue that makes requests late. */
static bool is_too_long(const struct finding *finding, u64 gap, u32 inside)
{
	/* Without a limit, there are LIMIT_MOST places. */
	u32 least = min(answered_in(too_long(finding), gap), (u32)LIMIT_MOST - 2);

	return finding->slow * 4 >= finding->answers * 3 && inside >= LEAST && inside > least;
}

/* A queue that is full: what comes then is dropped, without regard to its class, and what is answered may be in time. */
static bool is_full(const struct finding *finding, u64 mean)
{
	return finding->lost * FEW_LOST > finding->answers && mean > FULL * finding->needs && !is_quick(finding);
}

/* Nothing is kept back: does a queue stand in the service that does harm? */
static void look_for_queue(struct finding *finding, u64 gap, u64 mean, u32 inside, u64 now)
{
	bool drops = is_full(finding, mean);
	bool stands = drops || is_too_long(finding, gap, inside);
	u64 last;

	if (finding->gap_limited)
		return look_back(finding, now);
	if (!finding->deadline || !stands || now < finding->not_before) {
		finding->stands_since = 0;
		return begin_round(finding, now);
	}
	if (!finding->stands_since) {
		finding->stands_since = finding->began;
		finding->stood = 0;
	}
	finding->stood += finding->answers;
	/* When clients have just begun to ask, answers become more, slow ones last. */
	if (now - finding->stands_since < finding->late || finding->stood < 2 * ROUND)
		return begin_round(finding, now);
	last = gap;
	gap = clamp(div_u64(now - finding->stands_since, finding->stood), 1ULL, GAP_MOST);
	finding->stands_since = 0;
	/* They still become more. */
	if (last * 4 < gap * 3)
		return begin_round(finding, now);
	finding->gap_open = gap;
	finding->unreached = 0;
	finding->dropped_at = drops ? mean : 0;
	finding->limited_since = now;
	/* What nobody answers is inside, too. Of a queue that stands, there is no more than a multiple of what is answered. */
	inside = min(inside, max(answered_in(GROWS * mean, gap), (u32)LEAST));
	lower(finding, answered_in(aim_with_slow(finding), gap), gap, inside, now);
}

/* It was not a queue that made requests late, but their clients, as it seems: there is no limit again. */
static void give_up(struct finding *finding, u64 gap, u64 now)
{
	finding->gap_limited = gap;
	finding->stands_since = 0;
	finding->patience = clamp(2 * finding->patience, PATIENCE_LEAST, PATIENCE_MOST);
	finding->not_before = now + finding->patience;
	finding->now = LIMIT_MOST;
	finding->gap = finding->gap_least = 0;
	finding->was_lowered = finding->was_raised = false;
	finding->settled = now + finding->longest;
	begin_round(finding, now);
}

/* The round after the limit was lowered. Returns whether it was raised again. */
static bool judge(struct finding *finding, u64 gap, u64 mean, u32 inside, u64 now)
{
	finding->was_lowered = false;
	finding->rounds = 0;
	if (!has_cost(finding, gap)) {
		finding->needs = min(mean, finding->needs - finding->needs / 4);
		/* As long as it costs nothing, it goes on. */
		finding->rounds = TRY_EVERY;
		finding->patience = 0;
		return false;
	}
	if (finding->was_open || finding->long_answers * 4 >= finding->answers) {
		give_up(finding, gap, now);
		return true;
	}
	finding->floor = finding->before;
	/* By half at most: this may be an accident. */
	finding->needs = finding->needs ? min(mean, 2 * finding->needs) : mean;
	change(finding, finding->before, inside, now);
	return true;
}

/* Whether answers have become rarer than they were. It may be the limit's doing. */
static bool is_slower(struct finding *finding, u64 gap)
{
	smooth_gap(finding, gap);
	if (!finding->gap_least || finding->gap < finding->gap_least)
		finding->gap_least = finding->gap;
	else
		finding->gap_least += (finding->gap - finding->gap_least) / 32;
	return finding->gap - finding->gap_least > div_u64(finding->gap_least, SLOWER);
}

static void follow(struct finding *finding, u64 gap, u64 mean, u32 inside, u64 now)
{
	u32 limit = finding->now, wanted;
	bool is_try;

	if (!finding->was_reached) {
		finding->was_lowered = finding->was_raised = false;
		if (++finding->unreached >= UNREACHED_MOST) {
			finding->now = LIMIT_MOST;
			finding->gap = finding->gap_least = 0;
		}
		return begin_round(finding, now);
	}
	finding->unreached = 0;
	if (finding->gap > 2 * finding->gap_open && mean > 2 * aim(finding))
		return give_up(finding, finding->gap, now);
	if (finding->was_lowered && is_of_before(finding, gap, mean))
		return begin_round(finding, now);
	if (finding->was_lowered && judge(finding, gap, mean, inside, now))
		return;
	if (finding->was_raised) {
		finding->was_raised = false;
		finding->rounds = 0;
		if (has_paid(finding, gap))
			finding->needs = max(finding->needs, finding->mean_before);
	}
	finding->rounds++;
	if (is_slower(finding, gap) && finding->rounds >= 4)
		return raise(finding, mean, inside, now);
	/* The last round may have had few answers because the limit is low already: that must not make it lower. */
	wanted = max(answered_in(aim_with_slow(finding), aim(finding) > part(finding) ? finding->gap : gap), (u32)LEAST);
	is_try = finding->rounds >= TRY_EVERY && 2 * finding->needs > finding->deadline / 2 && limit > LEAST;
	if (wanted > limit + limit / 8)
		return change(finding, min(wanted, limit + limit / 2 + 1), inside, now);
	if (is_try)
		return lower(finding, limit - max(limit / 4, 1U), max(finding->gap, 1ULL), inside, now);
	if (wanted < limit - limit / 5 && (limit > finding->floor || finding->rounds >= 2 * TRY_EVERY))
		return lower(finding, wanted, gap, inside, now);
	begin_round(finding, now);
}

static void learn_needs(struct finding *finding, u64 took)
{
	finding->group_sum += took;
	if (++finding->group < GROUP)
		return;
	if (!finding->needs || finding->group_sum / GROUP < finding->needs)
		finding->needs = finding->group_sum / GROUP;
	finding->group = 0;
	finding->group_sum = 0;
}

/* How quick it is when it has much to do. So many answers that no client's own few say so, and that is forgotten within some rounds. */
static void learn_quickest(struct finding *finding, u64 now)
{
	if (finding->run++ % ROUND)
		return;
	if (finding->run_began)
		finding->quickest = min((now - finding->run_began) / ROUND, finding->quickest + finding->quickest / 8 + 1);
	finding->run_began = now;
}

/* How much gaps between answers vary. */
static void learn_spread(struct finding *finding, u64 now)
{
	u64 gap = min(now - finding->last, GAP_MOST), off;

	if (!finding->idle_since && finding->last)
		finding->pause = max(finding->pause, min(gap, finding->deadline / PAUSES));
	if (finding->last) {
		off = gap > finding->gap_mean ? gap - finding->gap_mean : finding->gap_mean - gap;
		finding->spread = finding->spread - finding->spread / 32 + off / 32;
		finding->gap_mean = finding->gap_mean - finding->gap_mean / 32 + gap / 32;
	}
	finding->last = now;
}

/* How many answers say whether a lower limit costs any: the more the more their gaps vary (exponential ones by 0.74 of their mean). */
static u32 judged_by(const struct finding *finding)
{
	return finding->spread * 4 < finding->gap_mean ? ROUND : finding->spread * 2 < finding->gap_mean ? 2 * ROUND : 4 * ROUND;
}

/*
 * A service that has the CPU for a moment only, again and again, as in a container with a quota of it, answers many at once, and then
 * nobody for long: what it does shows over several such turns.
 */
static bool has_lasted(const struct finding *finding, u64 now)
{
	return now - finding->began >= min(PAUSES * finding->pause, finding->deadline / PAUSES_PART);
}

/* Whether a lower limit costs so many answers that fewer of them say so. That is asked once a round. */
static bool is_plainly_worse(struct finding *finding, u64 now)
{
	if (!finding->was_lowered || finding->was_asked || finding->answers < max((u32)ROUND, judged_by(finding) / 2) || !has_lasted(finding, now))
		return false;
	finding->was_asked = true;
	return (now - finding->began) * 3 > 5 * finding->answers * finding->gap_before;
}

/* While nothing is inside, no answer is missing. */
static void skip_idle(struct finding *finding, u64 handed_on, u32 inside, u64 now)
{
	if (finding->idle_since && handed_on > finding->idle_since)
		finding->began += handed_on - finding->idle_since;
	finding->idle_since = inside ? 0 : now;
}

/* Whether it makes requests late, or is long only. */
static void count_long(struct finding *finding, u64 took)
{
	finding->slow += took > too_long(finding);
	if (took <= 2 * aim(finding))
		return;
	finding->long_answers++;
	finding->longer += took - aim(finding);
}

/* Of how many answers a round is. */
static u32 answers_wanted(const struct finding *finding)
{
	u32 least = finding->was_raised ? 6 * ROUND : finding->was_lowered ? judged_by(finding) : ROUND;

	return finding->now < LIMIT_MOST ? max(least, min(finding->now, (u32)ROUND_MOST)) : ROUND;
}

static void end_round(struct finding *finding, u32 inside, u64 now)
{
	u64 gap, mean;

	finding->pause -= finding->pause >> PAUSE_SHIFT;
	gap = clamp(div_u64(now - finding->began, finding->answers), 1ULL, GAP_MOST);
	mean = div_u64(finding->sum, finding->answers);
	if (finding->now < LIMIT_MOST)
		follow(finding, gap, mean, inside, now);
	else
		look_for_queue(finding, gap, mean, inside, now);
}

/*
 * An answer of a request that was handed on since there is a limit: most of those that were inside before have been answered, too. What
 * nobody answers is in `to_skip` as well, and would be waited for in vain.
 */
static bool is_under_first_limit(const struct finding *finding, u64 handed_on)
{
	return finding->was_open && finding->was_lowered && handed_on > finding->limited_since;
}

void finding_answer(struct finding *finding, u64 took, u64 handed_on, u32 inside, u64 now)
{
	/* A long poll says nothing for how long others take. */
	u64 late = min(now - handed_on, LONG * finding->deadline);

	learn_needs(finding, took);
	learn_quickest(finding, now);
	learn_spread(finding, now);
	if (!finding->began)
		finding->began = handed_on;
	skip_idle(finding, handed_on, inside, now);
	if (is_under_first_limit(finding, handed_on))
		finding->to_skip -= finding->to_skip / NEWER;
	if (finding->to_skip || now < finding->settled) {
		bool was_reached = finding->was_reached;

		/* The round begins with the last of them, whether it is the last by number or by time. */
		finding->to_skip -= finding->to_skip > 0;
		begin_round(finding, now);
		finding->was_reached = was_reached;
		return;
	}
	finding->answers++;
	finding->sum += took;
	finding->longest = max(finding->longest, late);
	finding->late = finding->late - finding->late / 32 + late / 32;
	finding->held = finding->held - finding->held / 32 + took / 32;
	/* Most answers come here, and are neither long nor a round's last: that costs a few instructions. Nothing shorter is long. */
	if (took > 2 * (finding->deadline / PART) || finding->dropped_at)
		count_long(finding, took);
	if (finding->answers < ROUND)
		return;
	if (finding->answers < answers_wanted(finding) && !is_plainly_worse(finding, now))
		return;
	if (has_lasted(finding, now))
		end_round(finding, inside, now);
}
