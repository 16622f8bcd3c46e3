// SPDX-License-Identifier: GPL-2.0
/* See choice.h. */
#include "choice.h"
#include "plain.h"

/* Fewer may be an accident. */
#define UNANSWERED_LEAST 4

/* Brings counts below 2^SHARE_BITS. */
static struct share normalised(struct share share)
{
	if (share.in_time > share.requests)
		share.in_time = share.requests;
	while (share.requests >> SHARE_BITS) {
		share.requests >>= 1;
		share.in_time >>= 1;
	}
	return share;
}

int is_further_behind(struct share a, struct share b)
{
	a = normalised(a);
	b = normalised(b);
	if (!a.requests || !b.requests)
		return b.requests && b.in_time;
	return a.in_time * b.requests * b.target < b.in_time * a.requests * a.target;
}

int has_surplus(struct share share)
{
	return share.requests && 2 * WHOLE_TARGET * share.in_time >= (WHOLE_TARGET + (__u64)share.target) * share.requests;
}

/*
 * A slot that is full stays full: were it to begin anew, what is taken off later would be less than what was added. Returns whether it
 * was not.
 */
static int count(__u64 *sum, __u32 *slot)
{
	if (*slot == ~0U)
		return 0;
	++*slot;
	++*sum;
	return 1;
}

/* Whether the window has the slot of this number still. */
static int is_in(const struct window *window, __u32 number)
{
	return window->number - number < WINDOW_SLOTS;
}

/* Whether the class is judged by the slot of this number, which the window has. */
static int is_judged(const struct window *window, __u32 number)
{
	return window->number - number <= window->number - window->since;
}

void window_count_request(struct window *window)
{
	window->judged_requests += count(&window->requests, &window->slot_requests[window->number % WINDOW_SLOTS]);
}

void window_count_answer(struct window *window, __u32 number, int is_in_time)
{
	__u32 slot = number % WINDOW_SLOTS;

	if (!is_in(window, number))
		return;
	count(&window->answered, &window->slot_answered[slot]);
	if (is_in_time && count(&window->in_time, &window->slot_in_time[slot]))
		window->judged_in_time += is_judged(window, number);
}

void window_count_unanswered(struct window *window, __u32 number)
{
	if (is_in(window, number))
		count(&window->unanswered, &window->slot_unanswered[number % WINDOW_SLOTS]);
}

void window_uncount_unanswered(struct window *window, __u32 number)
{
	__u32 *slot = &window->slot_unanswered[number % WINDOW_SLOTS];

	if (!is_in(window, number) || !*slot)
		return;
	--*slot;
	--window->unanswered;
}

void window_judge_anew(struct window *window)
{
	__u32 slot = window->number % WINDOW_SLOTS;

	window->since = window->number;
	window->judged_requests = window->slot_requests[slot];
	window->judged_in_time = window->slot_in_time[slot];
}

struct share window_share(const struct window *window, __u32 target)
{
	__u64 answered = window->answered, known = window->answered + window->unanswered;
	struct share share = { window->judged_requests, window->judged_in_time, target };

	if (window->unanswered < UNANSWERED_LEAST)
		return share;
	if (!answered)
		return (struct share){ 1, 1, target };
	share = normalised(share);
	while (known >> SHARE_BITS) {
		known >>= 1;
		answered >>= 1;
	}
	/* Below 2^48. What was answered in time has let itself be answered. */
	share.requests = div_u64(share.requests * answered, known);
	if (share.requests < share.in_time)
		share.requests = share.in_time;
	return share;
}

void window_advance(struct window *window, __u64 slots)
{
	if (slots >= WINDOW_SLOTS) {
		window->number += (__u32)slots - WINDOW_SLOTS;
		window_clear(window);
		return;
	}
	while (slots--) {
		__u32 slot = ++window->number % WINDOW_SLOTS;

		/* The window loses that slot, and has lost all before it. */
		if (window->number - window->since >= WINDOW_SLOTS) {
			window->judged_requests -= window->slot_requests[slot];
			window->judged_in_time -= window->slot_in_time[slot];
			window->since = window->number - WINDOW_SLOTS + 1;
		}
		window->requests -= window->slot_requests[slot];
		window->in_time -= window->slot_in_time[slot];
		window->answered -= window->slot_answered[slot];
		window->unanswered -= window->slot_unanswered[slot];
		window->slot_requests[slot] = 0;
		window->slot_in_time[slot] = 0;
		window->slot_answered[slot] = 0;
		window->slot_unanswered[slot] = 0;
	}
}

void window_clear(struct window *window)
{
	*window = (struct window){ .number = window->number + WINDOW_SLOTS, .since = window->number + WINDOW_SLOTS };
}

#if defined(__KERNEL__) && defined(DEBUG)
#include "selftest/choice.c"
#endif
