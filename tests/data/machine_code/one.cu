__global__ void one(float *p) { p[threadIdx.x] *= 2.f; }
