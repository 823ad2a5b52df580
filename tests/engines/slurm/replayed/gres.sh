#!/bin/bash
#SBATCH --job-name=gpu
#SBATCH --partition=gpus
#SBATCH --gres=gpu:a100:1
#SBATCH --output=gpu.out
echo "gpu ${CUDA_VISIBLE_DEVICES:-none}"
