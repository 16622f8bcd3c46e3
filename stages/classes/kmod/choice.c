// SPDX-License-Identifier: GPL-2.0
/* See choice.h. */
#include "choice.h"

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

/* A slot that is full stays full: were it to begin anew, what is taken off later would be less than what was added. */
static void count(__u64 *sum, __u32 *slot)
{
	if (*slot == ~0U)
		return;
	++*slot;
	++*sum;
}

void window_count_request(struct window *window)
{
	count(&window->requests, &window->slot_requests[window->number % WINDOW_SLOTS]);
}

void window_count_in_time(struct window *window, __u32 number)
{
	if (window->number - number < WINDOW_SLOTS)
		count(&window->in_time, &window->slot_in_time[number % WINDOW_SLOTS]);
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

		window->requests -= window->slot_requests[slot];
		window->in_time -= window->slot_in_time[slot];
		window->slot_requests[slot] = 0;
		window->slot_in_time[slot] = 0;
	}
}

void window_clear(struct window *window)
{
	*window = (struct window){ .number = window->number + WINDOW_SLOTS };
}

#if defined(__KERNEL__) && defined(DEBUG)
#include "selftest/choice.c"
#endif
