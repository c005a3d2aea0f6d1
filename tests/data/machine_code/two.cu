__global__ void two(float *p) { p[threadIdx.x] *= 2.f; }
