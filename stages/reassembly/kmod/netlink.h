/* SPDX-License-Identifier: GPL-2.0 */
/* The generic netlink interface: see ../uapi.h. */
#ifndef TARN_REASSEMBLY_NETLINK_H
#define TARN_REASSEMBLY_NETLINK_H

int netlink_register(void);
void netlink_unregister(void);

#endif
