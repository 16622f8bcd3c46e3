// SPDX-License-Identifier: GPL-2.0
/* See upgrades.h. */
#include "flows.h"
#include "upgrades.h"

#define UPGRADED_MOST 4096	/* of a service */

static void upgrade_end(struct classes *classes, struct flow *flow)
{
	list_del(&flow->upgraded);
	flow->is_upgraded = false;
	flow->class->upgraded_count--;
	classes->upgraded_count--;
	flow_put(classes, flow);
}

static struct client_class *with_most(struct classes *classes)
{
	struct client_class *most = classes->class;
	u32 i;

	for (i = 1; i < classes->count; i++)
		if (classes->class[i].upgraded_count > most->upgraded_count)
			most = &classes->class[i];
	return most;
}

/* It counts as one of the flow's requests, so that the flow stays. */
void upgrade_begin(struct classes *classes, struct flow *flow)
{
	if (classes->upgraded_count == UPGRADED_MOST)
		upgrade_end(classes, list_first_entry(&with_most(classes)->upgraded, struct flow, upgraded));
	flow->requests++;
	flow->is_upgraded = true;
	list_add_tail(&flow->upgraded, &flow->class->upgraded);
	flow->class->upgraded_count++;
	classes->upgraded_count++;
}

void upgrade_heard(struct classes *classes, struct flow *flow, bool ends)
{
	if (ends)
		upgrade_end(classes, flow);
	else
		list_move_tail(&flow->upgraded, &flow->class->upgraded);
}

void upgrades_flush(struct classes *classes)
{
	while (classes->upgraded_count)
		upgrade_end(classes, list_first_entry(&with_most(classes)->upgraded, struct flow, upgraded));
}
