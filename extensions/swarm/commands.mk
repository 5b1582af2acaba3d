##@ Operate

.PHONY: swarm-up swarm-load swarm-down
swarm-up: $(LAYER)/tools ##+ Start servers on a Docker Swarm, with a balancer on each node (REPLICAS=3)
	$(RUN) extensions.swarm.commands.swarm_up

swarm-load: $(LAYER)/tools ##+ Copy the server's image to other nodes of the swarm: NODES=ssh://node2,ssh://node3
	$(RUN) extensions.swarm.commands.swarm_load

swarm-down: down ##+ Stop the servers and balancers of the swarm
