/* Work on the volume: run on its pool, for it may take any time, and told to the control loop. */
#include "cluster/kl_int.h"

static void on_done(struct rt_msg *msg)
{
    struct kl_job *j = KC_CONTAINER_OF(msg, struct kl_job, msg);
    j->done(j);
}

static void run(struct rt_work *w)
{
    struct kl_job *j = KC_CONTAINER_OF(w, struct kl_job, work);
    j->rc = j->run(j);
    rt_post(j->loop, &j->msg);
}

void kl_job_post(struct kl_job *j, struct kl_cluster *k)
{
    j->work.fn = run;
    j->msg.fn = on_done;
    j->k = k;
    j->engine = k->o.engine;
    j->loop = k->loop;
    rt_pool_post(k->volume, &j->work);
}

const char *kl_job_why(const struct kl_job *j)
{
    return j->err.msg[0] ? j->err.msg : kc_strerror(j->rc);
}
